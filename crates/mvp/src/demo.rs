//! `mvp demo`: a small cluster in one process.

use crate::cli::DemoArgs;

/// Runs the demo, or checks its promises.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<()> {
    let DemoArgs { check: _, output: _, port_base: _ } = args;
    anyhow::bail!("mvp demo is not built yet")
}
