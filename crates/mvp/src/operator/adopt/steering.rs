//! What the gateway on this host says about its steering. Entry: [`place`].

use anyhow::Context;
use mvp_steer::connections::Place;

use crate::operator::gateway::GatewayArgs;
use crate::report::{Gateways, Status};

/// The port whose new connections the gateway steers now. Fails if there is none.
pub(super) fn place(gateway: &GatewayArgs) -> anyhow::Result<Place> {
    let answer = gateway.get("/debug/status")?;
    anyhow::ensure!(
        answer.status == 200,
        "the gateway at {gateway} answers {} instead of its status; is it of an older release?",
        answer.status
    );
    let gateways: Gateways = serde_json::from_str(&answer.body)
        .with_context(|| format!("the answer of the gateway at {gateway} is no status"))?;
    let status = gateways.gateways.into_iter().next().and_then(|first| first.status);
    let status = status.with_context(|| format!("the answer of {gateway} is empty"))?;
    of(&status).map_err(|why| anyhow::anyhow!("the gateway at {gateway} {why}"))
}

fn of(status: &Status) -> Result<Place, String> {
    let Some(steering) = &status.steering else {
        return Err("does not steer connections; start it with --steer".to_owned());
    };
    if steering.active {
        return Ok(Place { port: steering.port, address: steering.address });
    }
    let check = status.readiness.iter().find(|check| check.name == "steering");
    let reason = check.and_then(|check| check.problem.as_deref());
    let reason = reason.unwrap_or("see mvp status");
    Err(format!("does not steer connections now: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CheckState, SteeringState};

    #[test]
    fn only_an_active_gateway_steers() {
        let mut status = Status::default();
        assert!(of(&status).unwrap_err().ends_with("start it with --steer"));
        let steering = SteeringState { port: 7, ..SteeringState::default() };
        status.steering = Some(steering.clone());
        assert!(of(&status).unwrap_err().ends_with("now: see mvp status"));
        let check = |name: &str, problem: Option<&str>| CheckState {
            name: name.to_owned(),
            problem: problem.map(str::to_owned),
            remark: None,
        };
        status.readiness =
            vec![check("members", Some("none")), check("steering", Some("the kernel is too old"))];
        assert!(of(&status).unwrap_err().ends_with("now: the kernel is too old"));
        status.steering = Some(SteeringState { active: true, ..steering });
        assert_eq!(of(&status), Ok(Place { port: 7, address: None }));
    }
}
