//! Where a pod finds the API servers of its cluster. Entry item: [`of_environment`].

use crate::cli::{ServerUrl, server_url};

const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";

/// The Service `default/kubernetes`, as kubelets tell it to every pod; or what is missing or wrong.
pub(super) fn of_environment(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerUrl, String> {
    let get = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (get(HOST), get(PORT)) else {
        return Err(format!("there is no {HOST} and {PORT} in the environment, as pods have"));
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    server_url(&format!("https://{host}:{port}"))
        .map_err(|error| format!("{HOST} and {PORT} do not name a server ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_know_where_a_server_is() {
        for (host, port, expected) in [
            (Some("10.96.0.1"), Some("443"), Ok("https://10.96.0.1:443")),
            (Some("fd00:10:96::1"), Some("6443"), Ok("https://[fd00:10:96::1]:6443")),
            (Some("10.96.0.1"), None, Err("there is no KUBERNETES_SERVICE_HOST and ")),
            (Some(""), Some("443"), Err("there is no KUBERNETES_SERVICE_HOST and ")),
            (Some("10.96.0.1"), Some("https"), Err("KUBERNETES_SERVICE_HOST and ")),
            (Some("fd00::g"), Some("443"), Err("KUBERNETES_SERVICE_HOST and ")),
        ] {
            let variable = |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" => host.map(str::to_owned),
                "KUBERNETES_SERVICE_PORT" => port.map(str::to_owned),
                _ => None,
            };
            let found = of_environment(&variable).map(|url| url.to_string());
            match expected {
                Ok(url) => assert_eq!(found.as_deref(), Ok(url)),
                Err(start) => assert!(found.unwrap_err().starts_with(start), "{host:?} {port:?}"),
            }
        }
    }
}
