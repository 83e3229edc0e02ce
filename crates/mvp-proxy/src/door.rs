//! Stand-in until the door is merged.

/// A head that travels on a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeHead;
