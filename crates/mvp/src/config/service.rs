//! The API server that a pod finds in its environment. Entry: [`of_environment`].

use crate::cli::{ServerUrl, server_url};
use crate::mistake::Problem;

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// The address of the Service `default/kubernetes`, which the kubelet puts into every pod.
pub(super) fn of_environment(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerUrl, Problem> {
    let get = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (get(HOST), get(PORT)) else {
        return Err(format!("{HOST} and {PORT}, which every pod has, are not set").into());
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    server_url(&format!("https://{host}:{port}"))
        .map_err(|error| format!("{HOST} and {PORT} are not valid ({error})").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_read_from_the_environment() {
        for (host, port, expected) in [
            (Some("10.96.0.1"), Some("443"), Ok("https://10.96.0.1:443")),
            (Some("fd00:10:96::1"), Some("6443"), Ok("https://[fd00:10:96::1]:6443")),
            (
                Some("10.96.0.1"),
                None,
                Err("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which "),
            ),
            (
                Some(""),
                Some("443"),
                Err("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which "),
            ),
            (
                Some("10.96.0.1"),
                Some("https"),
                Err("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not valid"),
            ),
            (
                Some("fd00::g"),
                Some("443"),
                Err("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not valid"),
            ),
        ] {
            let variable = |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" => host.map(str::to_owned),
                "KUBERNETES_SERVICE_PORT" => port.map(str::to_owned),
                _ => None,
            };
            let found = of_environment(&variable).map(|url| url.to_string());
            match expected {
                Ok(url) => assert_eq!(found.as_deref(), Ok(url)),
                Err(start) => {
                    let error = found.unwrap_err().to_string();
                    assert!(error.starts_with(start), "{error}");
                }
            }
        }
    }
}
