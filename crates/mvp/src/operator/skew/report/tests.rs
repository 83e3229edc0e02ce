//! Every format of a report.

use super::*;
use crate::operator::skew::compare::tests::server;
use crate::operator::skew::finding::{Callers, Kind, Objects};
use crate::operator::skew::server::Answer;
use crate::operator::skew::surface::Surface;

fn servers() -> Vec<Server> {
    let mut silent = server("c", "v1.36.4", &[]);
    (silent.answer, silent.release) = (Answer::None("it is down".to_owned()), None);
    let a = server("a", "v1.34.10", &["v1 pods get,list", "batch/v1 jobs get"]);
    vec![a, server("b", "v1.36.4", &["v1 pods get"]), silent]
}

fn render(servers: &[Server], question: Question, output: SkewOutput) -> String {
    Report { servers, question }.render(output, Paint::PLAIN).unwrap()
}

#[test]
fn a_table_has_a_column_for_each_server_and_says_who_did_not_answer() {
    let text = render(&servers(), Question::Apis { all: false }, SkewOutput::Table);
    let expected = "\
GROUP/VERSION   RESOURCE   a          b              c
                           v1.34.10   v1.36.4        no answer
v1              pods       yes        without list   ?
batch/v1        jobs       yes        -              ?

c: no answer: it is down
";
    assert_eq!(text, expected);
    let wide = render(&servers(), Question::Apis { all: false }, SkewOutput::Wide);
    assert!(wide.contains("\nv1              pods       get,list   get       ?\n"), "{wide}");
    let markdown = render(&servers(), Question::Apis { all: false }, SkewOutput::Markdown);
    assert!(markdown.contains("\n| batch/v1 | jobs | yes | - | ? |\n"), "{markdown}");
}

#[test]
fn json_and_yaml_have_the_verbs_and_leave_out_who_did_not_answer() {
    let text = render(&servers(), Question::Apis { all: false }, SkewOutput::Json);
    let json: Value = serde_json::from_str(&text).unwrap();
    let jobs = &json["apis"][1];
    assert_eq!((&jobs["group"], &jobs["resource"]), (&json!("batch"), &json!("jobs")));
    assert_eq!(jobs["servers"], json!({"a": ["get"], "b": null}));
    assert_eq!(
        json["servers"][2],
        json!({"name": "c", "release": null, "resources": null, "problem": "it is down"})
    );
    let yaml = render(&servers(), Question::Apis { all: false }, SkewOutput::Yaml);
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json);
}

/// As the dashboard shows it. Who did not answer makes no difference.
#[test]
fn a_shortened_document_has_the_differences() {
    let more = |apis: &[&'static str]| [apis, &["v1 alike get", "v1 nodes get"]].concat();
    let mut servers = servers();
    servers[0] = server("a", "v1.34.10", &more(&["v1 pods get,list", "batch/v1 jobs get"]));
    servers[1] = server("b", "v1.36.4", &more(&["v1 pods get"]));
    let report = Report { servers: &servers, question: Question::Apis { all: true } };
    let document = report.shortened(true, 3);
    let names: Vec<&Value> =
        document["apis"].as_array().unwrap().iter().map(|row| &row["resource"]).collect();
    assert_eq!(names, ["pods", "jobs", "alike"]);
    assert_eq!((&document["leftOut"], &document["servers"][2]["name"]), (&json!(1), &json!("c")));
    assert_eq!(report.shortened(false, 3)["apis"].as_array().unwrap().len(), 2);
}

#[test]
fn servers_that_agree_are_told_in_a_sentence() {
    let same = [server("a", "v1", &["v1 pods get"]), server("b", "v1", &["v1 pods get"])];
    let text = render(&same, Question::Apis { all: false }, SkewOutput::Table);
    assert!(
        text.ends_with("\nAll 2 servers that answered serve the same 1 resources.\n"),
        "{text}"
    );
}

#[test]
fn only_a_used_api_is_stranded_by_a_release() {
    let api = Api::new("x", "v1beta1", "things");
    let finding =
        Finding::new(&api, ["list"].into_iter().collect(), Kind::All, &Surface::default());
    let with = |objects, callers| {
        let removed = vec![Finding { objects, callers, ..finding.clone() }];
        let step =
            Step { git_version: "v1.36.4".to_owned(), added: Vec::new(), removed, not_judged: 0 };
        Report { servers: &[], question: Question::With(step) }.strands()
    };
    let unknown = || Objects::Unknown("forbidden".to_owned());
    assert!(!with(Objects::Exactly(0), Callers::Unknown));
    assert!(!with(Objects::NotApplicable, Callers::Known(Vec::new())));
    assert!(with(Objects::Exactly(1), Callers::Known(Vec::new())));
    assert!(with(Objects::MoreThan(1), Callers::Unknown));
    assert!(with(unknown(), Callers::Unknown));
    assert!(with(Objects::Exactly(0), Callers::Known(vec!["alice".to_owned()])));
}

#[test]
fn names_from_a_server_cannot_control_a_terminal() {
    let mut evil = server("a", "v1\u{1b}[2J", &["x/v1 jobs\u{1b}[31m get"]);
    evil.name = "a\u{1b}]0;x\u{7}".to_owned();
    let mut silent = evil.clone();
    silent.answer = Answer::None("reason\u{1b}[2J\n".to_owned());
    for output in [
        SkewOutput::Table,
        SkewOutput::Wide,
        SkewOutput::Json,
        SkewOutput::Yaml,
        SkewOutput::Markdown,
    ] {
        let servers = [evil.clone(), silent.clone()];
        for question in
            [Question::Apis { all: true }, Question::Without { gone: 0, lost: Vec::new() }]
        {
            let text = render(&servers, question, output);
            assert!(!text.contains(['\u{1b}', '\u{7}']), "{output:?}: {text:?}");
        }
    }
}
