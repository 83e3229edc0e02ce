//! Columns of services, endpoints and the group `networking.k8s.io`. Entry: [`layout`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::cell::{AGE, Cell, Column, NAME, View, at, first, list, plain, text, text_of};

pub(super) fn layout(resource: &str) -> Option<&'static [Column]> {
    Some(match resource {
        "endpointslices" => ENDPOINT_SLICES,
        "ingresses" => INGRESSES,
        "ingressclasses" => INGRESS_CLASSES,
        "networkpolicies" => NETWORK_POLICIES,
        "servicecidrs" => SERVICE_CIDRS,
        "ipaddresses" => IP_ADDRESSES,
        _ => return None,
    })
}

pub(super) const SERVICES: &[Column] = &[
    NAME,
    text("Type", Cell::Text("spec.type", "ClusterIP")),
    text("Cluster-IP", Cell::Computed(cluster_ip)),
    text("External-IP", Cell::Computed(external_ip)),
    text("Port(s)", Cell::Computed(service_ports)),
    AGE,
    text("Selector", Cell::Labels("spec.selector")).wide(),
];

pub(super) const ENDPOINTS: &[Column] = &[NAME, text("Endpoints", Cell::Computed(endpoints)), AGE];

const ENDPOINT_SLICES: &[Column] = &[
    NAME,
    text("AddressType", Cell::Text("addressType", "")),
    text("Ports", Cell::Computed(slice_ports)),
    text("Endpoints", Cell::Computed(slice_endpoints)),
    AGE,
];

const INGRESSES: &[Column] = &[
    NAME,
    text("Class", Cell::Text("spec.ingressClassName", "<none>")),
    text("Hosts", Cell::Computed(hosts)),
    text("Address", Cell::Computed(|view| load_balancer(view).into())),
    text("Ports", Cell::Computed(ingress_ports)),
    AGE,
];

const INGRESS_CLASSES: &[Column] = &[
    Column { format: "name", ..text("Name", Cell::Computed(class_name)) },
    text("Controller", Cell::Text("spec.controller", "")),
    text("Parameters", Cell::Computed(parameters)),
    AGE,
];

const NETWORK_POLICIES: &[Column] =
    &[NAME, text("Pod-Selector", Cell::Selector("spec.podSelector")), AGE];

const SERVICE_CIDRS: &[Column] = &[NAME, text("CIDRs", Cell::Computed(cidrs)), AGE];

const IP_ADDRESSES: &[Column] = &[NAME, text("ParentRef", Cell::Computed(parent))];

/// The number of elements that a cell shows.
const SHOWN: usize = 3;

fn cluster_ip(view: &View<'_>) -> Value {
    let first = view.list("spec.clusterIPs").first().and_then(Value::as_str);
    first.unwrap_or_else(|| view.text_or("spec.clusterIP", "<none>")).into()
}

fn external_ip(view: &View<'_>) -> Value {
    let mut external: Vec<_> =
        view.list("spec.externalIPs").iter().filter_map(Value::as_str).collect();
    let balanced = load_balancer(view);
    match view.text_or("spec.type", "ClusterIP") {
        "ExternalName" => return view.text("spec.externalName").into(),
        "LoadBalancer" => {
            if !balanced.is_empty() {
                external.insert(0, &balanced);
            }
            if external.is_empty() {
                return "<pending>".into();
            }
        }
        "ClusterIP" | "NodePort" if external.is_empty() => return "<none>".into(),
        "ClusterIP" | "NodePort" => {}
        _ => return "<unknown>".into(),
    }
    external.join(",").into()
}

/// The addresses of a load balancer.
fn load_balancer(view: &View<'_>) -> String {
    let addresses: BTreeSet<_> = view
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|ingress| match text_of(ingress, "ip") {
            "" => text_of(ingress, "hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn service_ports(view: &View<'_>) -> Value {
    let ports: Vec<_> = view
        .list("spec.ports")
        .iter()
        .map(|port| {
            let number = |field| port.get(field).and_then(Value::as_i64).unwrap_or_default();
            let protocol = match text_of(port, "protocol") {
                "" => "TCP",
                protocol => protocol,
            };
            match number("nodePort") {
                0 => format!("{}/{protocol}", number("port")),
                node_port => format!("{}:{node_port}/{protocol}", number("port")),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
}

fn endpoints(view: &View<'_>) -> Value {
    let subsets = view.list("subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    let mut addresses = Vec::new();
    for subset in subsets {
        let ips = || list(subset.get("addresses")).iter().map(|address| text_of(address, "ip"));
        let ports = list(subset.get("ports"));
        if ports.is_empty() {
            addresses.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = port.get("port").and_then(Value::as_i64).unwrap_or_default();
            addresses.extend(ips().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    some(addresses, "").into()
}

fn slice_ports(view: &View<'_>) -> Value {
    let ports = view.list("ports").iter();
    let ports = ports.map(|port| {
        let named = || plain(port.get("name")).filter(|name| !name.is_empty());
        plain(port.get("port")).or_else(named).unwrap_or_else(|| "*".to_owned())
    });
    some(ports.collect(), "<unset>").into()
}

fn slice_endpoints(view: &View<'_>) -> Value {
    let endpoints = view.list("endpoints").iter();
    let addresses = endpoints.flat_map(|endpoint| list(endpoint.get("addresses")));
    let addresses = addresses.filter_map(|address| address.as_str().map(str::to_owned));
    some(addresses.collect(), "<unset>").into()
}

/// The first few of some texts; another text if there are none.
fn some(mut texts: Vec<String>, none: &str) -> String {
    let total = texts.len();
    texts.truncate(SHOWN);
    match first(&texts, total, ",") {
        text if text.is_empty() => none.to_owned(),
        text => text,
    }
}

fn hosts(view: &View<'_>) -> Value {
    let rules = view.list("spec.rules");
    let (mut hosts, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= hosts.len() == SHOWN;
        match text_of(rule, "host") {
            "" => {}
            host if !more => hosts.push(host.to_owned()),
            _ => {}
        }
    }
    match hosts.is_empty() {
        true => "*".into(),
        // As in Kubernetes, rules without a host count here.
        false if more => first(&hosts, rules.len(), ",").into(),
        false => hosts.join(",").into(),
    }
}

fn ingress_ports(view: &View<'_>) -> Value {
    if view.list("spec.tls").is_empty() { "80".into() } else { "80, 443".into() }
}

fn class_name(view: &View<'_>) -> Value {
    match view.annotated("ingressclass.kubernetes.io/is-default-class") {
        true => format!("{} (default)", view.name()).into(),
        false => view.name().into(),
    }
}

fn parameters(view: &View<'_>) -> Value {
    let Some(parameters) = view.at("spec.parameters") else {
        return "<none>".into();
    };
    let (kind, name) = (text_of(parameters, "kind"), text_of(parameters, "name"));
    match at(Some(parameters), "apiGroup").and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}").into(),
        None => format!("{kind}/{name}").into(),
    }
}

fn cidrs(view: &View<'_>) -> Value {
    let cidrs: Vec<_> = view.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    cidrs.join(",").into()
}

fn parent(view: &View<'_>) -> Value {
    let Some(parent) = view.at("spec.parentRef") else {
        return "<none>".into();
    };
    let mut text = text_of(parent, "resource").to_lowercase();
    for (separator, field) in [('.', "group"), ('/', "namespace"), ('/', "name")] {
        let part = text_of(parent, field);
        if !part.is_empty() {
            text.push(separator);
            text.push_str(part);
        }
    }
    text.into()
}
