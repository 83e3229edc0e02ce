//! `mvp forget`: one request to the admin endpoint of a running gateway. Entry: [`run`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context;

use crate::admin::ADMIN_HEADER;
use crate::cli::{ForgetArgs, server_id_at};
use crate::mistake::Mistake;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Makes a gateway forget a member.
pub(crate) fn run(args: &ForgetArgs) -> anyhow::Result<()> {
    let id = server_id_at(&args.id).map_err(|problem| Mistake::usage("mvp forget", problem))?;
    let at = args.admin_address;
    let answer = ask(at, &id).with_context(|| {
        format!("no gateway answers at {at}; give its --admin-bind-address as --admin-address")
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_ours = head.starts_with("HTTP/1.1 ") && !body.trim().is_empty();
    anyhow::ensure!(
        is_ours,
        "{at} is not the admin endpoint of mvp; give its --admin-bind-address as --admin-address"
    );
    anyhow::ensure!(head.starts_with("HTTP/1.1 200 "), "{}", body.trim());
    write!(io::stdout(), "{body}")?;
    Ok(())
}

fn ask(at: std::net::SocketAddr, id: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "POST /forget?id={id} HTTP/1.1\r\nhost: {at}\r\n{ADMIN_HEADER}: 1\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
