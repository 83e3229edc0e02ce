//! Runs the instructions that the program uses. It is strict: an unknown instruction, a read of a
//! register that was not written, a lost reference to a socket or any other exit than `SK_PASS` is a
//! panic.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::instruction::{Instruction, OF_MAP, OF_MAP_VALUE, Register, code};
use crate::program::{CHOICE, IPV4, IPV6, PASS, context, function};

pub(super) const BEATS_MAP: i32 = 7;
pub(super) const LISTENERS_MAP: i32 = 8;

/// Values of registers that stand for addresses.
const CONTEXT: u64 = 0x1000_0000_0000;
const STACK: u64 = 0x2000_0000_0000;
const BEATS: u64 = 0x3000_0000_0000;
const LISTENERS: u64 = 0x4000_0000_0000;
const SOCKET: u64 = 0x5000_0000_0000;

/// A new connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connection {
    pub(super) protocol: i32,
    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    pub(super) port: u16,
    pub(super) remote_port: u16,
}

impl Connection {
    /// The context of the program, as the kernel fills it.
    fn context(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut put = |offset: i16, value: &[u8]| {
            let offset = usize::try_from(offset).unwrap();
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        put(context::PROTOCOL, &self.protocol.to_ne_bytes());
        put(context::REMOTE_PORT, &self.remote_port.to_be_bytes());
        put(context::LOCAL_PORT, &u32::from(self.port).to_ne_bytes());
        match (self.remote, self.local) {
            (IpAddr::V4(remote), IpAddr::V4(local)) => {
                put(context::FAMILY, &IPV4.to_ne_bytes());
                put(context::REMOTE_IP4, &remote.octets());
                put(context::LOCAL_IP4, &local.octets());
            }
            (IpAddr::V6(remote), IpAddr::V6(local)) => {
                put(context::FAMILY, &IPV6.to_ne_bytes());
                put(context::REMOTE_IP6, &remote.octets());
                put(context::LOCAL_IP6, &local.octets());
            }
            _ => panic!("two families"),
        }
        bytes
    }
}

/// What the program can ask.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) beats: Vec<u64>,
    /// Whether there is a listener at each index: those for IPv4, then those for IPv6.
    pub(super) listeners: Vec<bool>,
}

/// Runs the program. The index of the chosen listener.
pub(super) fn run(program: &[Instruction], connection: &Connection, world: &World) -> Option<u32> {
    let context = connection.context();
    let mut machine = Machine {
        registers: HashMap::from([(1, CONTEXT), (10, STACK)]),
        context: &context,
        world,
        key: None,
        held: None,
        chosen: None,
    };
    let mut next = 0;
    for _ in 0..1_000 {
        let instruction = program[next];
        next += 1;
        if instruction.code == code::EXIT {
            assert_eq!(machine.get(Register(0)), u64::try_from(PASS).unwrap(), "it must pass");
            assert_eq!(machine.held, None, "a reference to a socket is lost");
            return machine.chosen;
        }
        if instruction.code == code::LOAD_CONSTANT {
            machine.load_map(instruction);
            next += 1;
        } else if machine.step(instruction) {
            next = next.checked_add_signed(isize::from(instruction.offset)).unwrap();
        }
    }
    panic!("the program does not end");
}

struct Machine<'a> {
    registers: HashMap<u8, u64>,
    context: &'a [u8; 64],
    world: &'a World,
    /// The word on the stack.
    key: Option<u32>,
    /// A socket that the program must release.
    held: Option<u32>,
    chosen: Option<u32>,
}

impl Machine<'_> {
    fn get(&self, register: Register) -> u64 {
        *self.registers.get(&register.0).unwrap_or_else(|| panic!("{register:?} is not set"))
    }

    fn set(&mut self, register: Register, value: u64) {
        assert_ne!(register.0, 10, "the frame pointer is read only");
        self.registers.insert(register.0, value);
    }

    fn load_map(&mut self, instruction: Instruction) {
        let address = match (instruction.from(), instruction.constant) {
            (OF_MAP, LISTENERS_MAP) => LISTENERS,
            (OF_MAP_VALUE, BEATS_MAP) => BEATS,
            other => panic!("no such map: {other:?}"),
        };
        self.set(instruction.to(), address);
    }

    /// Whether to jump.
    fn step(&mut self, instruction: Instruction) -> bool {
        let (to, from) = (instruction.to(), instruction.from());
        let extended = i64::from(instruction.constant).cast_unsigned();
        let word = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        let constant = instruction.constant.cast_unsigned();
        match instruction.code {
            code::LOAD_WORD => {
                assert_eq!(self.get(from), CONTEXT);
                let offset = usize::try_from(instruction.offset).unwrap();
                let bytes = self.context[offset..offset + 4].try_into().unwrap();
                self.set(to, u64::from(u32::from_ne_bytes(bytes)));
            }
            code::LOAD_DOUBLE => {
                assert_eq!(self.get(from), BEATS);
                let index = usize::try_from(instruction.offset).unwrap() / 8;
                self.set(to, self.world.beats[index]);
            }
            code::STORE_WORD => {
                assert_eq!((self.get(to), instruction.offset), (STACK, -4));
                self.key = Some(word(self.get(from)));
            }
            code::SET => self.set(to, extended),
            code::COPY => self.set(to, self.get(from)),
            code::ADD => self.set(to, self.get(to).wrapping_add(extended)),
            code::ADD_REGISTER => self.set(to, self.get(to).wrapping_add(self.get(from))),
            code::SUBTRACT_REGISTER => self.set(to, self.get(to).wrapping_sub(self.get(from))),
            code::AND_32 => self.set(to, u64::from(word(self.get(to)) & constant)),
            code::MULTIPLY_32 => {
                self.set(to, u64::from(word(self.get(to)).wrapping_mul(constant)));
            }
            code::SHIFT_RIGHT_32 => self.set(to, u64::from(word(self.get(to)) >> constant)),
            code::REMAINDER_32 => self.set(to, u64::from(word(self.get(to)) % constant)),
            code::IF_EQUAL => return self.get(to) == extended,
            code::IF_ABOVE => return self.get(to) > extended,
            code::IF_AT_LEAST_REGISTER => return self.get(to) >= self.get(from),
            code::IF_EQUAL_32 => return word(self.get(to)) == constant,
            code::IF_NOT_EQUAL_32 => return word(self.get(to)) != constant,
            code::JUMP => return true,
            code::CALL => self.call(instruction.constant),
            other => panic!("unknown instruction {other:#x}"),
        }
        false
    }

    fn call(&mut self, function: i32) {
        let arguments = self.registers.clone();
        let argument = |index: u8| arguments.get(&index).copied().expect("an argument is set");
        let result = match function {
            function::MONOTONIC_TIME => self.world.now,
            function::MAP_LOOKUP => {
                assert_eq!((argument(1), argument(2)), (LISTENERS, STACK - 4));
                let key = self.key.expect("the key is set");
                self.held = self.world.listeners[usize::try_from(key).unwrap()].then_some(key);
                self.held.map_or(0, |key| SOCKET + u64::from(key))
            }
            function::ASSIGN_SOCKET => {
                let held = self.held.expect("a socket");
                let expected = (CONTEXT, SOCKET + u64::from(held), u64::try_from(CHOICE).unwrap());
                assert_eq!((argument(1), argument(2), argument(3)), expected);
                self.chosen = Some(held);
                0
            }
            function::RELEASE_SOCKET => {
                let held = self.held.take().expect("a socket");
                assert_eq!(argument(1), SOCKET + u64::from(held));
                0
            }
            other => panic!("unknown function {other}"),
        };
        for register in 1..=5 {
            self.registers.remove(&register);
        }
        self.set(Register(0), result);
    }
}
