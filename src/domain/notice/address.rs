//! Which addresses a worker may call. Whoever can submit a task names them, so a worker inside of a network must not be
//! led to what only that network can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a worker may call beside the public internet. The default is nothing.
///
/// ```
/// use leasehold::domain::notice::address::Allowed;
/// let allowed = Allowed::parse(["10.1.0.0/16", "hooks.internal"]).unwrap();
/// assert!(allowed.admits("any", "10.1.2.3".parse().unwrap()));
/// assert!(!allowed.admits("any", "10.2.2.3".parse().unwrap()));
/// assert!(allowed.admits("hooks.internal", "127.0.0.1".parse().unwrap()));
/// assert!(allowed.admits("any", "8.8.8.8".parse().unwrap()), "that is public");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    networks: Vec<Network>,
    hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    bits: u8,
}

impl Allowed {
    /// Reads words that are networks in CIDR notation, single addresses, or names of hosts.
    ///
    /// # Errors
    /// The first word that is none of them.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Allowed, NotAllowable> {
        let mut allowed = Allowed::default();
        for word in words {
            match Network::parse(word) {
                Some(network) => allowed.networks.push(network),
                None if is_host(word) => allowed.hosts.push(word.to_ascii_lowercase()),
                None => return Err(NotAllowable { word: word.to_owned() }),
            }
        }
        Ok(allowed)
    }

    /// Whether `address`, which the host of this name (in lower case) was found to have, may be called.
    pub fn admits(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address)
            || self.networks.iter().any(|network| network.holds(address))
            || self.hosts.iter().any(|allowed| allowed == host)
    }
}

/// Why a word is nothing that can be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no network such as 10.1.0.0/16, no address and no name of a host")]
pub struct NotAllowable {
    word: String,
}

fn is_host(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // A name that ends in a number is read as an address by resolvers.
    let last = word.rsplit('.').next().unwrap_or_default();
    word.bytes().all(fits) && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl Network {
    fn parse(word: &str) -> Option<Network> {
        let (address, bits) = match word.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
            None => (word, None),
        };
        let first: IpAddr = address.parse().ok()?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Network { first, bits })
    }

    fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differing = u32::from(first) ^ u32::from(address);
                differing.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differing = u128::from(first) ^ u128::from(address);
                differing.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Network {
    Network { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
}

const fn v6(a: u16, b: u16, c: u16, bits: u8) -> Network {
    Network { first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), bits }
}

/// Networks of IPv4 that are not the public internet.
const SPECIAL: [Network; 17] = [
    v4(0, 0, 0, 0, 8),        // this host
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // behind a carrier's NAT; the metadata of one cloud
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // the metadata of a cloud, in the middle of public addresses
    v4(169, 254, 0, 0, 16),   // link-local; the metadata of most clouds
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments; the metadata of one cloud
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 31, 196, 0, 24),  // AS112
    v4(192, 52, 193, 0, 24),  // multicast tunnels
    v4(192, 88, 99, 0, 24),   // relays of 6to4
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 3),      // multicast, reserved, broadcast
];

/// The part of IPv6 that is handed out to the public internet,
const GLOBAL: Network = v6(0x2000, 0, 0, 3);
/// and what in it is something else.
const NOT_GLOBAL: [Network; 4] = [
    v6(0x2001, 0, 0, 23),     // protocol assignments, Teredo and ORCHID among them
    v6(0x2001, 0xdb8, 0, 32), // documentation
    v6(0x2002, 0, 0, 16),     // 6to4, which stands for any address of IPv4
    v6(0x3fff, 0, 0, 20),     // documentation
];
/// A translator's way to an address of IPv4, which is its last 32 bits.
const NAT64: Network = v6(0x64, 0xff9b, 0, 96);

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !SPECIAL.iter().any(|network| network.holds(address)),
        IpAddr::V6(whole) if NAT64.holds(address) => {
            let [.., a, b, c, d] = whole.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(_) => {
            GLOBAL.holds(address) && !NOT_GLOBAL.iter().any(|network| network.holds(address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(allowed: &Allowed, address: &str) -> bool {
        allowed.admits("host", address.parse().unwrap())
    }

    #[test]
    fn only_the_public_internet_may_be_called() {
        let nothing = Allowed::default();
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:a00:1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!admits(&nothing, address), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "168.63.129.17",
            "172.15.0.1",
            "172.32.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(admits(&nothing, address), "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_so_in_every_spelling() {
        let allowed = Allowed::parse(["127.0.0.0/8", "fd00::/8", "::1", "10.0.0.1", "Name.Local"]);
        let allowed = allowed.unwrap();
        for address in ["127.1.2.3", "::ffff:127.0.0.1", "fd12::1", "::1", "10.0.0.1"] {
            assert!(admits(&allowed, address), "{address}");
        }
        for address in ["10.0.0.2", "fc00::1", "::2", "169.254.169.254"] {
            assert!(!admits(&allowed, address), "{address}");
            assert!(allowed.admits("name.local", address.parse().unwrap()), "{address}");
        }
        let all = Allowed::parse(["0.0.0.0/0", "::/0"]).unwrap();
        assert!(admits(&all, "127.0.0.1") && admits(&all, "::1"));
    }

    #[test]
    fn words_that_allow_nothing_are_refused() {
        for word in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "1.2.3", "0x7f.1", "a b", "x/8", "*"]
        {
            // 0x7f.1 ends in a number: resolvers read it as an address.
            assert!(Allowed::parse([word]).is_err(), "{word:?}");
        }
    }
}
