//! BPF instructions, and jumps to a label. Entry item: [`Assembler`].

/// A register. `R1` to `R5` are arguments of calls, which overwrite them. `R0` is the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Register(pub(crate) u8);

pub(crate) const R0: Register = Register(0);
pub(crate) const R1: Register = Register(1);
pub(crate) const R2: Register = Register(2);
pub(crate) const R3: Register = Register(3);
pub(crate) const R6: Register = Register(6);
pub(crate) const R7: Register = Register(7);
pub(crate) const R8: Register = Register(8);
pub(crate) const R9: Register = Register(9);
/// The frame pointer, read only. The stack is below it.
pub(crate) const R10: Register = Register(10);

/// The operations that the program uses, as in `linux/bpf.h`.
pub(crate) mod code {
    pub(crate) const LOAD_WORD: u8 = 0x61;
    pub(crate) const LOAD_DOUBLE: u8 = 0x79;
    pub(crate) const STORE_WORD: u8 = 0x63;
    pub(crate) const SET: u8 = 0xb7;
    pub(crate) const COPY: u8 = 0xbf;
    pub(crate) const ADD: u8 = 0x07;
    pub(crate) const ADD_REGISTER: u8 = 0x0f;
    pub(crate) const SUBTRACT_REGISTER: u8 = 0x1f;
    /// On the lower 32 bits; the upper ones become 0.
    pub(crate) const AND_32: u8 = 0x54;
    pub(crate) const MULTIPLY_32: u8 = 0x24;
    pub(crate) const SHIFT_RIGHT_32: u8 = 0x74;
    pub(crate) const REMAINDER_32: u8 = 0x94;
    /// Compares 64 bits with a constant that is extended with its sign.
    pub(crate) const IF_EQUAL: u8 = 0x15;
    pub(crate) const IF_ABOVE: u8 = 0x25;
    pub(crate) const IF_AT_LEAST_REGISTER: u8 = 0x3d;
    /// Compare the lower 32 bits, so that no sign is extended.
    pub(crate) const IF_EQUAL_32: u8 = 0x16;
    pub(crate) const IF_NOT_EQUAL_32: u8 = 0x56;
    pub(crate) const JUMP: u8 = 0x05;
    /// Takes two instructions: the second one has the upper 32 bits.
    pub(crate) const LOAD_CONSTANT: u8 = 0x18;
    pub(crate) const CALL: u8 = 0x85;
    pub(crate) const EXIT: u8 = 0x95;
}

/// The source register of [`code::LOAD_CONSTANT`] says what the constant is.
pub(crate) const OF_MAP: Register = Register(1);
/// The address of the first value of an array map.
pub(crate) const OF_MAP_VALUE: Register = Register(2);

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub(crate) code: u8,
    /// The destination in one half and the source in the other, by the byte order of the machine.
    registers: u8,
    pub(crate) offset: i16,
    pub(crate) constant: i32,
}

impl Instruction {
    fn new(code: u8, to: Register, from: Register, offset: i16, constant: i32) -> Instruction {
        let registers =
            if cfg!(target_endian = "little") { from.0 << 4 | to.0 } else { to.0 << 4 | from.0 };
        Instruction { code, registers, offset, constant }
    }

    #[cfg(test)]
    pub(crate) fn to(self) -> Register {
        Register(if cfg!(target_endian = "little") {
            self.registers & 15
        } else {
            self.registers >> 4
        })
    }

    #[cfg(test)]
    pub(crate) fn from(self) -> Register {
        Register(if cfg!(target_endian = "little") {
            self.registers >> 4
        } else {
            self.registers & 15
        })
    }
}

/// A place in the program to jump to, which may come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Collects instructions, and resolves jumps at the end.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    /// The place of each label, once it is known.
    labels: Vec<Option<usize>>,
    /// Jumps: the place of the instruction, and its label.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(crate) fn place(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.instructions.len());
        }
    }

    /// `to = *(from + offset)`, for [`code::LOAD_WORD`] and [`code::LOAD_DOUBLE`].
    pub(crate) fn load(&mut self, code: u8, to: Register, from: Register, offset: i16) {
        self.instructions.push(Instruction::new(code, to, from, offset, 0));
    }

    /// `*(to + offset) = from`
    pub(crate) fn store_word(&mut self, to: Register, offset: i16, from: Register) {
        self.instructions.push(Instruction::new(code::STORE_WORD, to, from, offset, 0));
    }

    /// An operation with a constant: `to = to OPERATION constant`.
    pub(crate) fn apply(&mut self, code: u8, to: Register, constant: i32) {
        self.instructions.push(Instruction::new(code, to, R0, 0, constant));
    }

    /// An operation with a register: `to = to OPERATION from`.
    pub(crate) fn apply_register(&mut self, code: u8, to: Register, from: Register) {
        self.instructions.push(Instruction::new(code, to, from, 0, 0));
    }

    /// Jumps if `register` compares with the constant.
    pub(crate) fn jump_if(&mut self, code: u8, register: Register, constant: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.instructions.push(Instruction::new(code, register, R0, 0, constant));
    }

    /// Jumps if `register` compares with the other register.
    pub(crate) fn jump_if_register(
        &mut self,
        code: u8,
        register: Register,
        other: Register,
        label: Label,
    ) {
        self.jumps.push((self.instructions.len(), label));
        self.instructions.push(Instruction::new(code, register, other, 0, 0));
    }

    pub(crate) fn jump(&mut self, label: Label) {
        self.jump_if(code::JUMP, R0, 0, label);
    }

    /// `to` = a map, or the address of its first value, by the map's descriptor.
    pub(crate) fn load_map(&mut self, to: Register, what: Register, descriptor: i32) {
        self.instructions.push(Instruction::new(code::LOAD_CONSTANT, to, what, 0, descriptor));
        self.instructions.push(Instruction::new(0, R0, R0, 0, 0));
    }

    /// Calls a function of the kernel.
    pub(crate) fn call(&mut self, function: i32) {
        self.instructions.push(Instruction::new(code::CALL, R0, R0, 0, function));
    }

    pub(crate) fn exit(&mut self) {
        self.instructions.push(Instruction::new(code::EXIT, R0, R0, 0, 0));
    }

    /// The program. A jump counts from the instruction after it. `None` if a label was never placed,
    /// or is too far away.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (place, label) in self.jumps {
            let target = (*self.labels.get(label.0)?)?;
            let offset = i64::try_from(target).ok()? - i64::try_from(place).ok()? - 1;
            self.instructions.get_mut(place)?.offset = i16::try_from(offset).ok()?;
        }
        Some(self.instructions)
    }
}
