//! Connections in a network namespace of its own. Without the rights for it (this needs root) nothing
//! is tested here.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use socket2::{Domain, Type};

use super::*;
use crate::test_network::in_a_network_of_its_own;

const PORT: u16 = 6443;

/// A server that sends back what it gets. With `freebind` it is one of ours.
fn echo(address: &str, freebind: bool) {
    let address: SocketAddr = address.parse().unwrap();
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    if freebind {
        socket.set_freebind_v4(true).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    socket.listen(64).unwrap();
    let listener = TcpListener::from(socket);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut reading = stream.try_clone()?;
                std::io::copy(&mut reading, &mut stream)
            });
        }
    });
}

struct Client(TcpStream);

impl Client {
    /// Connects, and exchanges a byte: then the server has accepted it.
    fn new(address: &str) -> Client {
        let mut client = Client(TcpStream::connect(address).unwrap());
        client.answers().unwrap();
        client
    }

    fn answers(&mut self) -> std::io::Result<()> {
        self.0.write_all(b"x")?;
        self.0.read_exact(&mut [0])
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

fn remotes(connections: &[Connection]) -> Vec<SocketAddr> {
    let mut remotes: Vec<SocketAddr> = connections.iter().map(|one| one.remote).collect();
    remotes.sort();
    remotes
}

/// Both ends of every connection here belong to this process, so that all are the server's own.
fn unsteered(port: u16) -> Vec<Connection> {
    let Survey { unsteered, unclear, own } = survey(Place { port, address: None }).unwrap();
    assert_eq!((unsteered, unclear), (Vec::new(), Vec::new()));
    own
}

#[test]
fn connections_of_the_server_are_listed_and_ours_are_not() {
    in_a_network_of_its_own(|| {
        // As kube-apiserver: one socket for both families.
        echo("[::]:6443", false);
        echo("10.9.9.1:7443", true);
        let old = [Client::new("10.9.9.1:6443"), Client::new("[fd00::9]:6443")];
        let _loopback = [Client::new("127.0.0.1:6443"), Client::new("[::1]:6443")];
        let ours = Client::new("10.9.9.1:7443");
        let mut expected = old.each_ref().map(Client::address).to_vec();
        expected.sort();
        assert_eq!(remotes(&unsteered(PORT)), expected);
        assert_eq!(established(PORT).unwrap().len(), 4, "loopback is established, too");
        assert_eq!(remotes(&unsteered(7443)), []);
        let all = established(7443).unwrap();
        assert_eq!(remotes(&all), [ours.address()]);
        assert!(all[0].steered);
        assert!(all[0].is_at_rest(Duration::ZERO), "{all:?}");
        assert!(!all[0].is_at_rest(Duration::from_secs(3600)), "{all:?}");
    });
}

#[test]
fn exactly_one_connection_is_ended() {
    in_a_network_of_its_own(|| {
        echo("[::]:6443", false);
        let mut clients = ["10.9.9.1:6443", "10.9.9.1:6443", "[fd00::9]:6443"].map(Client::new);
        for (index, left) in [(1, 2), (2, 1)] {
            let found = unsteered(PORT);
            let one = found.iter().find(|one| one.remote == clients[index].address()).unwrap();
            match end(one) {
                Ok(there) => assert!(there),
                Err(ConnectionError::NotPermitted | ConnectionError::CannotEnd) => {
                    eprintln!("not tested: connections cannot be ended here");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
            let error = clients[index].0.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert!(!end(one).unwrap(), "it is gone");
            assert_eq!(unsteered(PORT).len(), left);
            clients[0].answers().unwrap();
        }
    });
}

#[test]
fn a_long_list_is_read_to_its_end() {
    in_a_network_of_its_own(|| {
        echo("[::]:6443", false);
        // More than fit into one part.
        let clients: Vec<Client> = (0..150).map(|_| Client::new("10.9.9.1:6443")).collect();
        assert_eq!(unsteered(PORT).len(), clients.len());
    });
}

#[test]
fn without_the_options_of_a_socket_nothing_is_known() {
    let socket = Socket {
        key: message::Key::default(),
        local: "10.0.0.1:6443".parse().unwrap(),
        remote: "10.0.0.2:5000".parse().unwrap(),
        inode: 1,
        received_bytes: 0,
        sent_bytes: 0,
        options: None,
        info: None,
    };
    assert!(matches!(Connection::try_from(socket), Err(ConnectionError::NoOptions)));
}
