//! A user, as a front proxy or a client certificate names it.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use mvp_net::CertificateUser;

use super::remote_headers::{REMOTE_EXTRA, REMOTE_GROUP, REMOTE_UID, REMOTE_USER, RemoteHeaders};

const CREDENTIAL_ID: HeaderName =
    HeaderName::from_static("x-remote-extra-authentication.kubernetes.io%2fcredential-id");

/// The headers that a request is given besides those of groups and extra fields, at most.
const ADDED: usize = 6;

/// A user, as header values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Option<HeaderValue>,
    /// The unique ID.
    pub uid: Option<HeaderValue>,
    /// The groups.
    pub groups: Vec<HeaderValue>,
    /// The extra fields, each under its full header name.
    pub extra: Vec<(HeaderName, HeaderValue)>,
}

impl User {
    /// The user that a front proxy names, if it names one.
    pub(super) fn from_remote(headers: &HeaderMap, names: &RemoteHeaders) -> Option<User> {
        let first = |names: &[HeaderName]| {
            let mut values = names.iter().filter_map(|name| headers.get(name));
            values.find(|value| !value.is_empty()).cloned()
        };
        let name = first(&names.username)?;
        let extra = headers.iter().filter_map(|(name, value)| {
            let prefix =
                names.extra_prefix.iter().find(|p| name.as_str().starts_with(p.as_str()))?;
            let rest = name.as_str().strip_prefix(prefix.as_str())?;
            let name = HeaderName::try_from(format!("{REMOTE_EXTRA}{rest}")).ok()?;
            Some((name, value.clone()))
        });
        Some(User {
            name: Some(name),
            uid: first(&names.uid),
            groups: names.group.iter().flat_map(|name| headers.get_all(name)).cloned().collect(),
            extra: extra.collect(),
        })
    }

    /// The user of a client certificate, unless one of its names cannot be a header value.
    pub(super) fn from_certificate(user: &CertificateUser) -> Option<User> {
        let value = |text: &String| HeaderValue::from_bytes(text.as_bytes()).ok();
        let groups: Option<Vec<HeaderValue>> = user.groups.iter().map(value).collect();
        // kube-apiserver adds this group to all users that it authenticates itself. For users that
        // a front proxy names, the front proxy must add it.
        let mut groups = groups?;
        let authenticated = HeaderValue::from_static("system:authenticated");
        if !groups.contains(&authenticated) {
            groups.push(authenticated);
        }
        Some(User {
            name: Some(value(&user.name)?),
            uid: match &user.uid {
                Some(uid) => Some(value(uid)?),
                None => None,
            },
            groups,
            extra: vec![(CREDENTIAL_ID, value(&user.credential_id)?)],
        })
    }

    /// Writes the user into the headers of a request to a server.
    pub(super) fn write(&self, headers: &mut HeaderMap, names: &RemoteHeaders) {
        let first = |names: &[HeaderName], usual| names.first().cloned().unwrap_or(usual);
        let username = first(&names.username, REMOTE_USER);
        let group = first(&names.group, REMOTE_GROUP);
        let uid = first(&names.uid, REMOTE_UID);
        // It only saves time.
        let _ = headers.try_reserve(ADDED + self.groups.len() + self.extra.len());
        for (name, value) in [(username, &self.name), (uid, &self.uid)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        for value in &self.groups {
            headers.append(group.clone(), value.clone());
        }
        for (name, value) in &self.extra {
            headers.append(names.extra(name), value.clone());
        }
    }

    /// This proxy's own user, as which it asks for discovery.
    pub(super) fn system() -> User {
        User {
            name: Some(HeaderValue::from_static("system:apiserver")),
            groups: vec![HeaderValue::from_static("system:authenticated")],
            ..User::default()
        }
    }

    /// Whether kube-apiserver treats the user as unauthenticated, although it has a name.
    pub(super) fn is_unauthenticated(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name == "system:anonymous")
            || self.groups.iter().any(|group| group == "system:unauthenticated")
    }
}
