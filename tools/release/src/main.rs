//! The program of a release; see the library.

fn main() -> std::process::ExitCode {
    release::main()
}
