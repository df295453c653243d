//! Files that real profilers wrote; `fixtures/README.md` has the commands.

use super::*;

fn check(file: &[u8], expected: Expect) {
    let imported = of(file);
    let mut text = format!("{} of {} ns\n", imported.format, imported.duration_ns);
    for note in &imported.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str(&collapsed(&imported.profile()));
    expected.assert_eq(&text);
}

#[test]
fn perf_script_of_perf_6() {
    check(
        include_bytes!("../../fixtures/perf.script"),
        expect![[r#"
        perf of 574080001 ns
        imported;__libc_start_call_main;main;load;parse 480000000
    "#]],
    );
}

#[test]
fn a_cpu_profile_of_node_20() {
    check(
        include_bytes!("../../fixtures/node.cpuprofile"),
        expect![[r#"
        chrome of 199773000 ns
        imported;(anonymous);executeUserEntryPoint;Module._load;Module.load;Module._extensions..js;Module._compile;(anonymous);load 72270000
        imported;(anonymous);executeUserEntryPoint;Module._load;Module.load;Module._extensions..js;Module._compile;(anonymous);load;parse 51881000
        imported;(garbage collector) 40021000
        imported;(program) 33045000
    "#]],
    );
}

#[test]
fn raw_stacks_of_py_spy() {
    check(
        include_bytes!("../../fixtures/py-spy.raw"),
        expect![[r#"
        collapsed of 190000000 ns
        note: weights are samples of 10 ms; --interval sets another time, --unit nanoseconds reads them as time
        imported;<module>;load;parse 190000000
    "#]],
    );
}

#[test]
fn a_speedscope_file_of_py_spy() {
    check(
        include_bytes!("../../fixtures/py-spy.speedscope.json"),
        expect![[r#"
        speedscope of 950000000 ns
        imported;<module>;load;parse 950000000
    "#]],
    );
}
