//! Listening sockets.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};

use mvp_net::{bind, bind_workers};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn a_port_in_use_is_an_error_even_between_sharers() {
    let first = bind_workers(any_port(), 2, false).unwrap();
    let taken = first[0].local_addr().unwrap();
    for attempt in [bind(taken, false).map(|_| ()), bind_workers(taken, 2, false).map(|_| ())] {
        assert_eq!(attempt.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
    drop(first);
    assert_eq!(bind_workers(taken, 2, false).unwrap().len(), 2);
}

#[test]
fn workers_share_one_port() {
    let listeners = bind_workers(any_port(), 3, false).unwrap();
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    assert_ne!(addresses[0].port(), 0);
    assert!(addresses.iter().all(|address| *address == addresses[0]));
}

#[test]
fn the_port_is_free_again_after_a_connection() {
    let listener = bind(any_port(), false).unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    // The side that closes first is the one that stays in TIME_WAIT.
    listener.set_nonblocking(false).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    drop(client);
    bind(address, false).unwrap();
}
