//! The name of a request in messages and logs.

use std::fmt;

use super::{RequestInfo, ResourceRequest};

/// `pods.v1`, `deployments/scale.v1.apps`, `discovery`, `OpenAPI` or `the path`.
impl fmt::Display for RequestInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestInfo::Resource(request) => request.fmt(f),
            RequestInfo::Discovery(_) => f.write_str("discovery"),
            RequestInfo::OpenApi(_) => f.write_str("OpenAPI"),
            RequestInfo::NonResource(_) | RequestInfo::Malformed => f.write_str("the path"),
        }
    }
}

impl fmt::Display for ResourceRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        write!(f, ".{}", self.version)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_resource_version_and_group() {
        let name = |path| RequestInfo::parse("GET", path, None).to_string();
        assert_eq!(name("/api/v1/pods"), "pods.v1");
        let scale = "/apis/apps/v1/namespaces/x/deployments/y/scale";
        assert_eq!(name(scale), "deployments/scale.v1.apps");
        assert_eq!(name("/apis"), "discovery");
        assert_eq!(name("/openapi/v3"), "OpenAPI");
        assert_eq!(name("/healthz"), "the path");
    }
}
