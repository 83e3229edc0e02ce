//! The program that the kernel runs for each new connection: pure, instructions out. Entry item:
//! [`assemble`].
//!
//! ```text
//! TCP, and our port?                        else: pass
//! the destination is ours, not loopback?    else: pass
//! the source is not loopback?               else: pass
//! no beat has expired?                      else: pass
//! one of our listeners for this family?     else: pass
//! choose it
//! pass: let the kernel go on with the choice, or without one
//! ```
//!
//! It never drops a connection: every path ends with `SK_PASS`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::instruction::{
    Assembler, Instruction, Label, OF_MAP, OF_MAP_VALUE, R0, R1, R2, R3, R6, R7, R8, R9, R10,
    Register, code,
};

/// What the program depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The port whose connections are steered.
    pub port: u16,
    /// The only address whose connections are steered; `None` for all but loopback.
    pub address: Option<IpAddr>,
    /// How many beats there are. None may have expired.
    pub beats: u16,
    /// How far in the future a beat may expire. At most two seconds.
    pub furthest: Duration,
    /// The descriptor of the array map with the beats.
    pub beats_map: i32,
    /// How many listeners there are for each family, at least one. Connections are spread over them.
    pub listeners: u16,
    /// The descriptor of the socket map: the listeners for IPv4, then those for IPv6.
    pub listeners_map: i32,
}

/// A beat may expire this much later than [`Settings::furthest`]: clocks of two processors differ a
/// little.
const CLOCK_TOLERANCE: i32 = 1_000_000;

/// 2³² divided by the golden ratio: consecutive numbers are spread evenly.
const MIXER: i32 = 0x9e37_79b1_u32.cast_signed();

/// Offsets in the context of the program, `struct bpf_sk_lookup`.
pub(crate) mod context {
    pub(crate) const FAMILY: i16 = 8;
    pub(crate) const PROTOCOL: i16 = 12;
    pub(crate) const REMOTE_IP4: i16 = 16;
    pub(crate) const REMOTE_IP6: i16 = 20;
    /// In network order, in half of the word.
    pub(crate) const REMOTE_PORT: i16 = 36;
    pub(crate) const LOCAL_IP4: i16 = 40;
    pub(crate) const LOCAL_IP6: i16 = 44;
    /// In the byte order of the machine, unlike all addresses.
    pub(crate) const LOCAL_PORT: i16 = 60;
}

/// Functions of the kernel.
pub(crate) mod function {
    pub(crate) const MAP_LOOKUP: i32 = 1;
    pub(crate) const MONOTONIC_TIME: i32 = 5;
    pub(crate) const RELEASE_SOCKET: i32 = 86;
    pub(crate) const ASSIGN_SOCKET: i32 = 124;
}

pub(crate) const TCP: i32 = 6;
pub(crate) const IPV4: i32 = 2;
pub(crate) const IPV6: i32 = 10;
/// `SK_PASS`: use the chosen socket, or look for a listener as usual.
pub(crate) const PASS: i32 = 1;
/// Takes the place of the choice of programs that were attached before, and is final: the kernel must
/// not go on to other sockets that share the listener's port.
pub(crate) const CHOICE: i32 = REPLACE | NO_REUSEPORT;
const REPLACE: i32 = 1;
const NO_REUSEPORT: i32 = 2;

/// The instructions for these settings.
pub fn assemble(settings: &Settings) -> Vec<Instruction> {
    let mut program = Assembler::default();
    let pass = program.label();

    program.apply_register(code::COPY, R6, R1);
    program.load(code::LOAD_WORD, R2, R6, context::PROTOCOL);
    program.jump_if(code::IF_NOT_EQUAL_32, R2, TCP, pass);
    program.load(code::LOAD_WORD, R2, R6, context::LOCAL_PORT);
    program.jump_if(code::IF_NOT_EQUAL_32, R2, i32::from(settings.port), pass);

    // No instruction may be out of reach: the kernel rejects such programs.
    program.load(code::LOAD_WORD, R2, R6, context::FAMILY);
    match settings.address {
        None => {
            let (ipv4, alive) = (program.label(), program.label());
            program.jump_if(code::IF_EQUAL_32, R2, IPV4, ipv4);
            program.jump_if(code::IF_NOT_EQUAL_32, R2, IPV6, pass);
            take_ipv6(&mut program, settings, None, pass);
            program.jump(alive);
            program.place(ipv4);
            take_ipv4(&mut program, None, pass);
            program.place(alive);
        }
        Some(IpAddr::V4(only)) => {
            program.jump_if(code::IF_NOT_EQUAL_32, R2, IPV4, pass);
            take_ipv4(&mut program, Some(only), pass);
        }
        Some(IpAddr::V6(only)) => {
            program.jump_if(code::IF_NOT_EQUAL_32, R2, IPV6, pass);
            take_ipv6(&mut program, settings, Some(only), pass);
        }
    }
    jump_if_expired(&mut program, settings, pass);

    // By the client's port, not by chance: with SYN cookies the program runs twice for a connection, and
    // must choose the same listener. Clients prefer ports of one parity, so the bits are mixed first.
    program.load(code::LOAD_WORD, R2, R6, context::REMOTE_PORT);
    program.apply(code::MULTIPLY_32, R2, MIXER);
    program.apply(code::SHIFT_RIGHT_32, R2, 16);
    program.apply(code::REMAINDER_32, R2, i32::from(settings.listeners.max(1)));
    program.apply_register(code::ADD_REGISTER, R7, R2);
    // The argument of the lookup is the address of the key, on the stack.
    program.store_word(R10, -4, R7);
    program.apply_register(code::COPY, R2, R10);
    program.apply(code::ADD, R2, -4);
    program.load_map(R1, OF_MAP, settings.listeners_map);
    program.call(function::MAP_LOOKUP);
    program.jump_if(code::IF_EQUAL, R0, 0, pass);
    program.apply_register(code::COPY, R7, R0);
    program.apply_register(code::COPY, R1, R6);
    program.apply_register(code::COPY, R2, R7);
    program.apply(code::SET, R3, CHOICE);
    // If it fails, nothing is chosen.
    program.call(function::ASSIGN_SOCKET);
    program.apply_register(code::COPY, R1, R7);
    program.call(function::RELEASE_SOCKET);

    program.place(pass);
    program.apply(code::SET, R0, PASS);
    program.exit();
    program.finish().unwrap_or_else(|| unreachable!("all labels are placed above"))
}

/// Chooses the listeners for IPv4 (the first, in R7), unless an end is loopback or the destination
/// another one.
fn take_ipv4(program: &mut Assembler, only: Option<Ipv4Addr>, pass: Label) {
    program.apply(code::SET, R7, 0);
    for address in [context::LOCAL_IP4, context::REMOTE_IP4] {
        program.load(code::LOAD_WORD, R2, R6, address);
        program.apply(code::AND_32, R2, in_network_order([0xff, 0, 0, 0]));
        program.jump_if(code::IF_EQUAL_32, R2, in_network_order([127, 0, 0, 0]), pass);
    }
    if let Some(only) = only {
        program.load(code::LOAD_WORD, R2, R6, context::LOCAL_IP4);
        program.jump_if(code::IF_NOT_EQUAL_32, R2, in_network_order(only.octets()), pass);
    }
}

/// The same for IPv6.
fn take_ipv6(program: &mut Assembler, settings: &Settings, only: Option<Ipv6Addr>, pass: Label) {
    program.apply(code::SET, R7, i32::from(settings.listeners.max(1)));
    for address in [context::LOCAL_IP6, context::REMOTE_IP6] {
        jump_if_loopback6(program, address, pass);
    }
    let octets = only.map(|only| only.octets());
    let words = octets.iter().flat_map(|octets| octets.as_chunks::<4>().0);
    for (offset, word) in (context::LOCAL_IP6..).step_by(4).zip(words) {
        program.load(code::LOAD_WORD, R2, R6, offset);
        program.jump_if(code::IF_NOT_EQUAL_32, R2, in_network_order(*word), pass);
    }
}

/// Jumps if the IPv6 address at this place of the context is `::1`.
fn jump_if_loopback6(program: &mut Assembler, address: i16, label: Label) {
    let other = program.label();
    for word in 0..3 {
        program.load(code::LOAD_WORD, R2, R6, address + 4 * word);
        program.jump_if(code::IF_NOT_EQUAL_32, R2, 0, other);
    }
    program.load(code::LOAD_WORD, R2, R6, address + 12);
    program.jump_if(code::IF_EQUAL_32, R2, in_network_order([0, 0, 0, 1]), label);
    program.place(other);
}

/// Jumps if a beat has expired. The beats are read before the time: a beat that happens meanwhile only
/// makes them look older.
fn jump_if_expired(program: &mut Assembler, settings: &Settings, label: Label) {
    const EARLIEST: Register = R8;
    program.load_map(R9, OF_MAP_VALUE, settings.beats_map);
    program.load(code::LOAD_DOUBLE, EARLIEST, R9, 0);
    for beat in 1..settings.beats {
        let later = program.label();
        let offset = i16::try_from(usize::from(beat) * size_of::<u64>()).unwrap_or(0);
        program.load(code::LOAD_DOUBLE, R2, R9, offset);
        program.jump_if_register(code::IF_AT_LEAST_REGISTER, R2, EARLIEST, later);
        program.apply_register(code::COPY, EARLIEST, R2);
        program.place(later);
    }
    program.call(function::MONOTONIC_TIME);
    // The time that is left, without a sign: a beat that has expired is as far in the future as one
    // that nobody may store.
    program.apply_register(code::SUBTRACT_REGISTER, EARLIEST, R0);
    let furthest = i32::try_from(settings.furthest.as_nanos()).unwrap_or(0);
    program.jump_if(code::IF_ABOVE, EARLIEST, furthest.saturating_add(CLOCK_TOLERANCE), label);
}

/// Four bytes of an address, as a word that was loaded from memory has them.
pub(crate) fn in_network_order(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;
