//! `mvp forget`: one request to the admin socket of a running gateway. Entry: [`run`].

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::cli::{ForgetArgs, server_id_at};
use crate::mistake::Mistake;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Makes a gateway forget a member.
pub(crate) fn run(args: &ForgetArgs) -> anyhow::Result<()> {
    if args.admin_address.is_some() {
        let now = "this needs the Unix socket of the gateway; give its --admin-socket";
        return Err(Mistake::usage("--admin-address", now).into());
    }
    let id = server_id_at(&args.id).map_err(|problem| Mistake::usage("mvp forget", problem))?;
    let path = args.admin_socket.display();
    let answer = ask(&args.admin_socket, &id).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => "run it as the user that runs mvp serve, or as root",
            _ => "give the --admin-socket of a gateway on this host (its log names it)",
        };
        anyhow::anyhow!("no gateway answers at {path}: {error}; {hint}")
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_ours = head.starts_with("HTTP/1.1 ") && !body.trim().is_empty();
    anyhow::ensure!(is_ours, "{path} is not the admin socket of mvp; give its --admin-socket");
    anyhow::ensure!(head.starts_with("HTTP/1.1 200 "), "{}", body.trim());
    write!(io::stdout(), "{body}")?;
    Ok(())
}

fn ask(at: &Path, id: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(at)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "POST /forget?id={id} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
