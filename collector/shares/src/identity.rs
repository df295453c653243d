//! The sender of a request. Roles, fair shares and quotas are keyed by it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use profiler_core::TokenId;

/// The other end of a connection, as the connection itself shows it: an extension of every request.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Connected through the network, perhaps with a certificate that was verified.
    Network {
        address: SocketAddr,
        certificate: Option<CertificateNames>,
    },
    /// Connected to the Unix socket, from a process of this user, who may use it.
    Unix { user: u32 },
}

/// The DNS names in a client's certificate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CertificateNames(pub Arc<[String]>);

/// The sender of a request: an extension of every request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Identity {
    /// Everybody who connects from this address, see [`network_of`].
    Address(IpAddr),
    /// Everybody with a certificate for these names.
    Certificate(CertificateNames),
    /// A user of this machine.
    User(u32),
    /// The holders of this token.
    Token(TokenId),
    /// The collector itself, as the sender of scraped profiles.
    Collector,
}

/// Leading bits of an address of IPv6 that one site usually has, which is 65,536 networks.
const SITE_BITS: u32 = 48;

/// Where an identity comes from: a site for addresses of IPv6, else the identity itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    Site(Ipv6Addr),
    Identity(Identity),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Address(IpAddr::V6(network)) if !network.is_loopback() => {
                write!(f, "{network}/{NETWORK_BITS}")
            }
            Identity::Address(address) => address.fmt(f),
            Identity::Certificate(CertificateNames(names)) => {
                write!(f, "certificate of {}", names.join(", "))
            }
            Identity::User(user) => write!(f, "user {user}"),
            Identity::Token(id) => write!(f, "token {id}"),
            Identity::Collector => f.write_str("the collector"),
        }
    }
}

/// Leading bits of an address of IPv6 that one host may have for itself: it can use every address below.
const NETWORK_BITS: u32 = 64;

/// The address that stands for a host: its own, or by IPv6 the first one of its network.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let host_bits = u128::BITS - NETWORK_BITS;
            Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits).into()
        }
        address => address,
    }
}

impl Identity {
    pub fn of(peer: &Peer) -> Identity {
        match peer {
            Peer::Network {
                certificate: Some(names),
                ..
            } => Identity::Certificate(names.clone()),
            Peer::Network {
                address,
                certificate: None,
            } => Identity::Address(network_of(address.ip())),
            Peer::Unix { user } => Identity::User(*user),
        }
    }

    pub fn origin(&self) -> Origin {
        match self {
            Identity::Address(IpAddr::V6(address)) if !address.is_loopback() => {
                let other_bits = u128::BITS - SITE_BITS;
                Origin::Site(Ipv6Addr::from_bits(
                    address.to_bits() >> other_bits << other_bits,
                ))
            }
            identity => Origin::Identity(identity.clone()),
        }
    }

    /// Whether only its holders can have it, unlike an address, which changes and is shared.
    pub fn is_proven(&self) -> bool {
        match self {
            Identity::Token(_) | Identity::Certificate(_) | Identity::User(_) => true,
            Identity::Address(_) | Identity::Collector => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_of_ipv6_is_its_network() {
        assert_eq!(
            identity("2001:db8:0:1::7"),
            identity("2001:db8:0:1:ffff::9")
        );
        assert_ne!(identity("2001:db8:0:1::7"), identity("2001:db8:0:2::7"));
        assert_eq!(identity("2001:db8:0:1::7").to_string(), "2001:db8:0:1::/64");
        assert_eq!(identity("::1").to_string(), "::1");
        assert_eq!(identity("::ffff:10.0.0.1"), identity("10.0.0.1"));
        assert_ne!(identity("10.0.0.1"), identity("10.0.0.2"));
    }

    fn identity(address: &str) -> Identity {
        let address = SocketAddr::new(address.parse().unwrap(), 4_747);
        Identity::of(&Peer::Network {
            address,
            certificate: None,
        })
    }
}
