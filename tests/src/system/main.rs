//! Whole-system tests: the shipped `emberline`, real workers, real sockets. Each test starts its
//! own processes on its own ports and ends them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod account;
mod bad_input;
mod bombs;
mod bucket;
mod chaos;
mod clocks;
mod compare;
mod connections;
mod crash;
mod deep;
mod demo;
mod doctor;
mod drain;
mod edges;
mod exports_golden;
mod floods;
mod forward;
mod full_disk;
mod guests;
mod hang;
mod harness;
mod hostile;
mod hostile_collector;
mod import;
mod live;
mod login;
mod moves;
mod order;
mod quotas;
mod report;
mod report_golden;
mod report_guard;
mod restart;
mod scrape;
mod service;
mod sockets;
mod sql;
mod sql_cluster;
mod symbols;
mod terminal;
mod tls;
mod tokens;
mod trace;
mod truth;
mod views;
mod watch;
mod worker_lost;
