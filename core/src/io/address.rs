#![forbid(unsafe_code)]
//! Where a socket is.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::net::SocketAddr as UnixAddr;

/// A socket's address, of the families that the standard library has sockets of.
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use evenkeel::io::Address;
///
/// let address = Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 80)));
/// assert_eq!(address.to_string(), "127.0.0.1:80");
/// ```
#[derive(Clone, Debug)]
pub enum Address {
    /// Of the internet, version 4 or 6.
    Inet(SocketAddr),
    /// Of this machine: a path, an abstract name, or none.
    Unix(UnixAddr),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(address) => match address.as_pathname() {
                Some(path) => path.display().fmt(f),
                None => write!(f, "{address:?}"),
            },
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl From<SocketAddrV4> for Address {
    fn from(address: SocketAddrV4) -> Self {
        Self::Inet(address.into())
    }
}

impl From<SocketAddrV6> for Address {
    fn from(address: SocketAddrV6) -> Self {
        Self::Inet(address.into())
    }
}

impl From<(Ipv4Addr, u16)> for Address {
    fn from(address: (Ipv4Addr, u16)) -> Self {
        Self::Inet(address.into())
    }
}

impl From<(Ipv6Addr, u16)> for Address {
    fn from(address: (Ipv6Addr, u16)) -> Self {
        Self::Inet(address.into())
    }
}

impl From<UnixAddr> for Address {
    fn from(address: UnixAddr) -> Self {
        Self::Unix(address)
    }
}
