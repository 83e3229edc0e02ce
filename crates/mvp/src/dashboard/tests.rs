//! Tests of the routes, without a socket.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::request::Builder;
use http_body_util::BodyExt;
use mvp_net::{CertificateUser, ConnectionInfo, Judgement};
use tower::ServiceExt;

use super::*;
use crate::dashboard::board::tests::{board, restless};

fn page() -> Router {
    protected(routes(board(), Audience::Anybody), Arc::default())
}

fn request(path: &str) -> Builder {
    Request::get(path).header("host", "127.0.0.1:6480")
}

async fn ask(router: Router, request: Builder) -> (StatusCode, Response, String) {
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (parts.status, Response::from_parts(parts, Body::empty()), text)
}

#[tokio::test]
async fn every_file_is_guarded_and_kept_by_its_tag() {
    for asset in &assets::ASSETS {
        let (status, response, body) = ask(page(), request(asset.path)).await;
        assert_eq!((status, &*body), (StatusCode::OK, asset.body));
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(response.headers()[CACHE_CONTROL], "no-cache");
        let tag = response.headers()[ETAG].to_str().unwrap();
        let known = request(asset.path).header(IF_NONE_MATCH, format!("\"x\", {tag}"));
        let (status, _, body) = ask(page(), known).await;
        assert_eq!((status, &*body), (StatusCode::NOT_MODIFIED, ""));
        let other = request(asset.path).header(IF_NONE_MATCH, "\"x\"");
        assert_eq!(ask(page(), other).await.0, StatusCode::OK);
    }
}

/// docs/dashboard.md tells the size.
#[test]
fn the_page_is_small_and_loads_nothing_from_elsewhere() {
    let size: usize = assets::ASSETS.iter().map(|asset| asset.body.len()).sum();
    assert!(size < 100_000, "{size} bytes");
    for asset in &assets::ASSETS {
        let body = asset.body.replace("http://www.w3.org/", "");
        for word in [
            "http://",
            "https://",
            "innerHTML",
            "insertAdjacentHTML",
            "eval(",
            " style=\"",
            "@import",
        ] {
            assert!(!body.contains(word), "{} has {word}", asset.path);
        }
    }
}

#[tokio::test]
async fn pages_of_other_sites_read_nothing() {
    for path in [PATH, EVENTS, APIS] {
        let evil = Request::get(path).header("host", "evil.example");
        let (status, response, body) = ask(page(), evil).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(body.contains("--admin-allowed-hosts"), "{body}");
        assert_eq!(response.headers()["cross-origin-resource-policy"], "same-origin");
    }
    for path in [EVENTS, APIS] {
        let other_site = request(path).header("sec-fetch-site", "cross-site");
        assert_eq!(ask(page(), other_site).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    let own = request(APIS).header("sec-fetch-site", "same-origin");
    let (status, response, _) = ask(page(), own).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn an_address_of_other_hosts_shows_no_page_over_plain_http() {
    for path in [PATH, EVENTS, APIS] {
        let (status, _, body) = ask(refused(), request(path)).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(body.contains("--dashboard-bind-address"), "{body}");
    }
}

/// A connection with a certificate of these groups; none without a certificate.
fn connection(groups: Option<&[&str]>) -> ConnectionInfo {
    let user = groups.map(|groups| {
        Ok(CertificateUser {
            name: "alice".to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            uid: None,
            credential_id: String::new(),
        })
    });
    let judgement = Judgement { user, ..Judgement::default() };
    ConnectionInfo::new(SocketAddr::from(([10, 0, 0, 9], 1)), Vec::new(), judgement)
}

#[tokio::test]
async fn other_hosts_need_a_certificate_of_an_allowed_group() {
    for (groups, code) in [
        (None, 401),
        (Some(&[][..]), 403),
        (Some(&["developers"][..]), 403),
        (Some(&["system:masters "][..]), 403),
        (Some(&["developers", "system:masters"][..]), 200),
    ] {
        for path in [PATH, "/dashboard/page.js", APIS] {
            let allowed = vec!["system:masters".to_owned()];
            let router = secure::router(board(), allowed, AllowedHosts::default());
            // What a front proxy says does not count.
            let asked = request(path)
                .extension(connection(groups))
                .header("x-remote-user", "admin")
                .header("x-remote-group", "system:masters");
            assert_eq!(ask(router, asked).await.0.as_u16(), code, "{groups:?} {path}");
        }
    }
    let router = secure::router(board(), vec!["a".to_owned()], AllowedHosts::default());
    let evil =
        Request::get(PATH).header("host", "evil.example").extension(connection(Some(&["a"])));
    assert_eq!(ask(router, evil).await.0, StatusCode::FORBIDDEN);
}

/// So that a client certificate is judged again.
#[tokio::test(start_paused = true)]
async fn a_stream_shows_that_it_lives_and_ends_after_ten_minutes() {
    let board = board();
    let running = tokio::spawn(Arc::clone(&board).run());
    let begun = tokio::time::Instant::now();
    let stream = events::response(board.open(Audience::Anybody).unwrap());
    let text = stream.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let seconds = begun.elapsed().as_secs();
    assert!((600..=620).contains(&seconds), "{seconds} s");
    assert!(text.starts_with("retry: 1000\n\nevent: "), "{text}");
    assert_eq!(text.matches("event: members\n").count(), 1, "{text}");
    let alive = text.matches("event: alive\n").count();
    assert!((50..=60).contains(&alive), "{alive}");
    running.abort();
}

/// Also if there is something new whenever it reads.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_for_a_slow_reader_too() {
    let board = restless();
    let running = tokio::spawn(Arc::clone(&board).run());
    let begun = tokio::time::Instant::now();
    let mut stream = events::response(board.open(Audience::Anybody).unwrap()).into_body();
    while let Some(frame) = stream.frame().await {
        frame.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    let seconds = begun.elapsed().as_secs();
    assert!((590..=620).contains(&seconds), "{seconds} s");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_page_that_reads_nothing_gives_its_place_back() {
    let board = restless();
    let running = tokio::spawn(Arc::clone(&board).run());
    let open = || board.open(Audience::Anybody).map(events::response);
    let streams: Vec<Response> = std::iter::from_fn(open).collect();
    assert_eq!(streams.len(), places::MAX_ANYBODY);
    tokio::time::sleep(events::LIFE / 2).await;
    assert!(board.open(Audience::Anybody).is_none());
    tokio::time::sleep(events::LIFE).await;
    assert!(board.open(Audience::Anybody).is_some());
    running.abort();
}

#[test]
fn the_url_names_an_address_that_can_be_reached() {
    for (address, expected) in [
        ("127.0.0.1:6480", "http://127.0.0.1:6480/dashboard"),
        ("0.0.0.0:6480", "http://127.0.0.1:6480/dashboard"),
        ("[::]:6480", "http://[::1]:6480/dashboard"),
        ("[fd00::1]:6480", "http://[fd00::1]:6480/dashboard"),
    ] {
        assert_eq!(url("http", address.parse().unwrap()), expected);
    }
}
