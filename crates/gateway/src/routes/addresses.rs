//! An address for every Gateway.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use kube::core::DynamicObject;

use crate::{
    cache::{Name, spec},
    kinds::GatewaySpec,
    settings::Settings,
};

/// The address of each Gateway, or why it has none. An address once written to a status stays: clients know it.
pub fn addresses<'a>(
    gateways: impl Iterator<Item = (&'a Name, &'a DynamicObject)>,
    settings: &Settings,
) -> BTreeMap<Name, Result<Ipv4Addr, String>> {
    let mut taken = BTreeSet::new();
    let mut given = BTreeMap::new();
    let mut waiting = Vec::new();
    let mut holders = Vec::new();
    for (name, gateway) in gateways {
        match asked(&spec::<GatewaySpec>(gateway)) {
            Some(Ok(address)) => {
                let alone = taken.insert(address);
                let address =
                    if alone { Ok(address) } else { Err(format!("{address} is another Gateway's")) };
                given.insert(name.clone(), address);
            }
            Some(Err(why)) => drop(given.insert(name.clone(), Err(why))),
            None => holders.push((name, holds(gateway, settings))),
        }
    }
    for (name, held) in holders {
        match held {
            Some(address) if taken.insert(address) => drop(given.insert(name.clone(), Ok(address))),
            _ => waiting.push(name),
        }
    }
    for name in waiting {
        // By name, so that a Gateway that is made anew has its old address again.
        let first = name
            .to_string()
            .bytes()
            .fold(0_u16, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let free =
            (0..u16::MAX).map(|step| settings.address(first.wrapping_add(step))).find(|a| !taken.contains(a));
        let address = free.ok_or_else(|| "every address is taken".to_owned());
        taken.extend(address.iter().copied());
        given.insert(name.clone(), address);
    }
    given
}

fn asked(spec: &GatewaySpec) -> Option<Result<Ipv4Addr, String>> {
    let wanted = spec.addresses.iter().find_map(|address| {
        let is_ip = address.r#type.as_deref().unwrap_or("IPAddress") == "IPAddress";
        address.value.as_deref().filter(|value| !value.is_empty()).map(|value| (is_ip, value))
    });
    let (is_ip, value) = wanted?;
    let parsed = value.parse::<Ipv4Addr>().ok().filter(|address| is_ip && address.is_loopback());
    Some(
        parsed.ok_or_else(|| {
            format!("{value} is not an address of 127.0.0.0/8, the only ones of this machine")
        }),
    )
}

fn holds(gateway: &DynamicObject, settings: &Settings) -> Option<Ipv4Addr> {
    let value = gateway.data.pointer("/status/addresses/0/value")?.as_str()?;
    let address: Ipv4Addr = value.parse().ok()?;
    (address.octets()[..2] == settings.addresses).then_some(address)
}
