//! Attacks on a gateway through real sockets. Each is refused or contained, others are served
//! meanwhile, and it is logged and counted.

mod downgrades;
mod floods;
mod lies;
mod processes;
mod responses;
mod secrets;
mod smuggling;
mod strict;
mod target;
mod upgrades;
