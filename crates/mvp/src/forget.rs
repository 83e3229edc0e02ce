//! `mvp forget`: one request to the admin socket of a running gateway. Entry: [`run`].

use std::io::{self, Write};

use crate::cli::{ForgetArgs, server_id_at};
use crate::mistake::Mistake;
use crate::operator::gateway::GatewayArgs;

/// Makes a gateway forget a member.
pub(crate) fn run(args: &ForgetArgs) -> anyhow::Result<()> {
    if args.admin_address.is_some() {
        let now = "this needs the Unix socket of the gateway; give its --admin-socket";
        return Err(Mistake::usage("--admin-address", now).into());
    }
    let id = server_id_at(&args.id).map_err(|problem| Mistake::usage("mvp forget", problem))?;
    let gateway = GatewayArgs { admin_socket: args.admin_socket.clone(), admin_address: None };
    let answer = gateway.send("POST", &format!("/forget?id={id}"))?;
    anyhow::ensure!(answer.status == 200, "{}", answer.body.trim());
    write!(io::stdout(), "{}", answer.body)?;
    Ok(())
}
