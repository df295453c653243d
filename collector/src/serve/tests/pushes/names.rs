//! Names that mean something in our own exports, and are those of functions here.

use super::*;

/// Each name below a caller and above a function.
#[tokio::test]
async fn names_of_clients_stay_names() {
    let running = serve().await;
    let names = [
        "[no stack]",
        "[not sampled]",
        "[overflow]",
        "[truncated]",
        "crate:foo",
        "re:foo",
    ];
    let mut folded = String::new();
    let mut stacks = Vec::new();
    for name in names {
        folded += &format!("main;{name} 1\nmain;{name};leaf 2\n");
        stacks.push(format!("s;main;{name} 10000000"));
        stacks.push(format!("s;main;{name};leaf 20000000"));
    }
    stacks.sort();
    running
        .ingest(&format!("name=s&{TIMES}"), &[], folded.as_bytes())
        .await;
    assert_eq!(running.stacks("").await, stacks);
    let profile = running.json("/api/v1/profile?from=0").await;
    let nodes = profile["profile"]["nodes"].as_array().unwrap();
    for name in names {
        let kinds: Vec<&Value> = nodes
            .iter()
            .filter(|node| node["name"] == name)
            .map(|node| &node["kind"])
            .collect();
        assert_eq!(kinds, ["function"], "{name}");
        let focus = name
            .replace('[', "%5B")
            .replace(']', "%5D")
            .replace(' ', "%20");
        let focused = running.stacks(&format!("&focus={focus}")).await;
        assert_eq!(focused.len(), 2, "{name}: {focused:?}");
    }
    // The same through pprof, whose second push finds its names in the tree.
    let exported = get(running.address, "/api/v1/profile?from=1000030&format=pprof").await;
    for name in ["t", "u"] {
        let query = format!("name={name}&{TIMES}&format=pprof");
        running.ingest(&query, &[], &exported.bytes).await;
        let pushed = running
            .stacks(&format!("&label=service_name%3D{name}"))
            .await;
        assert_eq!(pushed, stacks, "{name}");
    }
}
