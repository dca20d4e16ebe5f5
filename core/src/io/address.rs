#![forbid(unsafe_code)]
//! Where a socket is.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
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

// The families' numbers on Linux.
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// An address as Linux takes it and gives it, for reactors: a `sockaddr` of one of the families.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct KernelAddress {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl KernelAddress {
    /// As many bytes as the longest address has, in round numbers: a `sockaddr_storage`.
    pub const ROOM: usize = 128;

    /// Room for an address that is to be received.
    #[must_use]
    pub const fn room() -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Where an address may be written to, [`ROOM`](Self::ROOM) bytes.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// So many bytes were written there.
    pub fn set_length(&mut self, length: usize) {
        self.length = length.min(Self::ROOM);
    }

    fn put(&mut self, bytes: &[u8]) {
        let from = self.length;
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        self.set_length(from + bytes.len());
    }
}

impl From<&Address> for KernelAddress {
    fn from(address: &Address) -> Self {
        let mut kernel = Self::room();
        match address {
            Address::Inet(SocketAddr::V4(address)) => {
                kernel.put(&AF_INET.to_ne_bytes());
                kernel.put(&address.port().to_be_bytes());
                kernel.put(&address.ip().octets());
                kernel.put(&[0; 8]);
            }
            Address::Inet(SocketAddr::V6(address)) => {
                kernel.put(&AF_INET6.to_ne_bytes());
                kernel.put(&address.port().to_be_bytes());
                // As the standard library has it, without regard to the order of its bytes.
                kernel.put(&address.flowinfo().to_ne_bytes());
                kernel.put(&address.ip().octets());
                kernel.put(&address.scope_id().to_ne_bytes());
            }
            Address::Unix(address) => {
                kernel.put(&AF_UNIX.to_ne_bytes());
                if let Some(path) = address.as_pathname() {
                    kernel.put(path.as_os_str().as_bytes());
                    kernel.put(&[0]);
                } else if let Some(name) = abstract_name(address) {
                    kernel.put(&[0]);
                    kernel.put(name);
                }
            }
        }
        kernel
    }
}

#[cfg(target_os = "linux")]
fn abstract_name(address: &UnixAddr) -> Option<&[u8]> {
    address.as_abstract_name()
}

#[cfg(not(target_os = "linux"))]
fn abstract_name(_: &UnixAddr) -> Option<&[u8]> {
    None
}

/// The address that these bytes are, if it is of a family that is known.
fn decode(bytes: &[u8]) -> Option<Address> {
    let (family, rest) = bytes.split_first_chunk()?;
    match u16::from_ne_bytes(*family) {
        AF_INET => {
            let (port, rest) = rest.split_first_chunk()?;
            let (ip, _) = rest.split_first_chunk::<4>()?;
            Some(Address::from((Ipv4Addr::from(*ip), u16::from_be_bytes(*port))))
        }
        AF_INET6 => {
            let (port, rest) = rest.split_first_chunk()?;
            let (flow, rest) = rest.split_first_chunk()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let (scope, _) = rest.split_first_chunk()?;
            Some(Address::from(SocketAddrV6::new(
                Ipv6Addr::from(*ip),
                u16::from_be_bytes(*port),
                u32::from_ne_bytes(*flow),
                u32::from_ne_bytes(*scope),
            )))
        }
        AF_UNIX => unix(rest).ok().map(Address::Unix),
        _ => None,
    }
}

fn unix(name: &[u8]) -> io::Result<UnixAddr> {
    match name {
        #[cfg(target_os = "linux")]
        [0, name @ ..] => UnixAddr::from_abstract_name(name),
        path => {
            let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
            UnixAddr::from_pathname(OsStr::from_bytes(&path[..end]))
        }
    }
}

impl KernelAddress {
    /// The address, if it is of a family that [`Address`] knows and not the empty one of a socket
    /// without a name.
    #[must_use]
    pub fn decode(&self) -> Option<Address> {
        decode(self.as_bytes()).filter(|_| self.length > 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(address: impl Into<Address>) -> (usize, Address) {
        let kernel = KernelAddress::from(&address.into());
        (kernel.as_bytes().len(), kernel.decode().unwrap())
    }

    #[test]
    fn an_address_survives_its_way_through_the_kernel() {
        let (length, address) = there_and_back((Ipv4Addr::new(10, 1, 2, 3), 4567));
        assert_eq!((length, address.to_string().as_str()), (16, "10.1.2.3:4567"));
        let six = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0x0102_0304, 7);
        let (length, Address::Inet(SocketAddr::V6(address))) = there_and_back(six) else {
            panic!()
        };
        assert_eq!((length, address), (28, six));
        let path = UnixAddr::from_pathname("/run/x").unwrap();
        let (length, address) = there_and_back(path);
        assert_eq!((length, address.to_string().as_str()), (9, "/run/x"));
        let name = UnixAddr::from_abstract_name(b"a\0b").unwrap();
        let (length, Address::Unix(address)) = there_and_back(name) else { panic!() };
        assert_eq!((length, address.as_abstract_name()), (6, Some(&b"a\0b"[..])));
    }

    #[test]
    fn an_ipv4_address_lies_as_the_kernel_has_it() {
        let kernel = KernelAddress::from(&Address::from((Ipv4Addr::new(1, 2, 3, 4), 0x0506)));
        assert_eq!(kernel.as_bytes()[2..8], [5, 6, 1, 2, 3, 4]);
    }

    #[test]
    fn what_is_none_is_none() {
        for bytes in [&[][..], &[1, 0], &[2, 0, 1], &[10, 0, 1, 2, 3], &[99, 0, 1, 2, 3]] {
            let mut kernel = KernelAddress::room();
            kernel.put(bytes);
            assert!(kernel.decode().is_none(), "{bytes:?}");
        }
    }
}
