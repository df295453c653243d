//! What stays: a log of what was acknowledged, and tables made from it.
#![allow(dead_code)] // until the parts are joined

mod row;
mod table;
mod tier;
