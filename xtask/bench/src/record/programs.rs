//! The programs that are measured: scripts of a shell, in a folder of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::profilers::Profiler;

/// A program. Its script starts it by `$UNDER`, or else attaches to it by `$ATTACH`, if there is one.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Prepares its files; fails if the program is missing.
    setup: &'static str,
    pub(super) script: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Measured next to other profilers.
    Native,
    Python,
    Node,
    /// Measured with ours only.
    Other,
    /// The same, from outside.
    Outside,
}

impl Program {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn has_peers(&self) -> bool {
        !matches!(self.kind, Kind::Other | Kind::Outside)
    }

    /// Whether all profilers name the same functions: ours names those of Python instead of the interpreter's.
    pub(super) fn has_shared_names(&self) -> bool {
        self.kind != Kind::Python
    }

    /// The profiler whose row is in the table of all programs.
    pub(super) fn ours(&self) -> Profiler {
        Profiler::Run
    }

    /// Prepares the folder.
    ///
    /// # Errors
    /// If the program is missing.
    pub(super) fn prepare(&self, work: &Path) -> Result<()> {
        fs::create_dir_all(work)?;
        for (name, text) in FILES {
            fs::write(work.join(name), text)?;
        }
        let output = Command::new("sh")
            .args(["-e", "-c", self.setup])
            .current_dir(work)
            .env("ROOT", xtask::root())
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}", said.lines().last().unwrap_or("its setup failed"));
        }
        Ok(())
    }
}

const BIG_FILE: &str = r#"awk 'BEGIN { srand(1); for (i = 0; i < 3000000; i++) printf "%.9f line %d\n", rand(), i }' > big.txt"#;

pub(super) const ALL: &[Program] = &[
    Program {
        name: "sort",
        setup: BIG_FILE,
        script: "LC_ALL=C.UTF-8 $UNDER sort --parallel=1 -S 400M -o sorted big.txt; echo $?; cksum < sorted",
        kind: Kind::Native,
    },
    Program {
        name: "gzip",
        setup: BIG_FILE,
        script: "$UNDER gzip -c big.txt > packed; echo $?; cksum < packed",
        kind: Kind::Native,
    },
    Program {
        name: "sqlite3",
        setup: "sqlite3 --version",
        script: r#"$UNDER sqlite3 :memory: "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x<12000000) SELECT sum(x*x%7), count(DISTINCT x%1000) FROM c;"; echo $?"#,
        kind: Kind::Native,
    },
    Program {
        name: "c++",
        setup: "c++ -O2 -o templates templates.cc",
        script: "$UNDER ./templates; echo $?",
        kind: Kind::Native,
    },
    Program {
        name: "node",
        setup: "node --version",
        script: "$UNDER node $NODE_FLAGS --perf-basic-prof work.js; echo $?",
        kind: Kind::Node,
    },
    Program {
        name: "python3",
        setup: "/usr/bin/python3 --version",
        script: "$UNDER /usr/bin/python3 work.py; echo $?",
        kind: Kind::Python,
    },
    Program {
        name: "tar with zstd",
        setup: "zstd --version; cp -r /usr/include files",
        script: "$UNDER tar --zstd -cf packed files; echo $?; cksum < packed",
        kind: Kind::Other,
    },
    Program {
        name: "git log",
        setup: "git --version",
        script: r#"$UNDER git -C "$ROOT" log --stat -n 700 HEAD > log; echo $?; cksum < log"#,
        kind: Kind::Other,
    },
    Program {
        name: "gcc -O2",
        setup: r#"awk 'BEGIN { for (i = 0; i < 400; i++) printf "int f%d(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) { s += a[i] * %d; if (s > %d) s ^= a[(i * 7) %% n]; } return s; }\n", i, i, i * 3 }' > large.c"#,
        script: "$UNDER gcc -O2 -c large.c; echo $?; cksum < large.o",
        kind: Kind::Other,
    },
    Program {
        name: "ffmpeg",
        setup: "ffmpeg -version",
        script: "$UNDER ffmpeg -nostdin -v error -f lavfi -i testsrc=duration=12:size=640x360:rate=30 -threads 1 -c:v mpeg4 -f md5 -; echo $?",
        kind: Kind::Other,
    },
    Program {
        name: "nginx under wrk",
        setup: "nginx -v; wrk --version || test $? = 1; head -c 3000 templates.cc > index.html; mkdir -p logs",
        script: r#"$UNDER nginx -p "$PWD" -e stderr -c nginx.conf & server=$!
until wrk -t1 -c1 -d1s http://127.0.0.1:48130/ > /dev/null; do sleep 0.1; done
wrk -t1 -c8 -d3s http://127.0.0.1:48130/index.html > wrk.txt
awk '/requests in/ { print $1 }' wrk.txt > units
kill -QUIT $server; wait $server; echo $?"#,
        kind: Kind::Other,
    },
    Program {
        name: "redis under redis-benchmark",
        setup: "redis-server --version",
        script: r#"$UNDER redis-server --port 48131 --save "" --appendonly no > /dev/null & server=$!
until redis-cli -p 48131 ping > /dev/null 2>&1; do sleep 0.05; done
redis-benchmark -p 48131 -n 100000 -c 8 -t set,get -q > /dev/null
kill -TERM $server; wait $server; echo $?"#,
        kind: Kind::Other,
    },
    Program {
        name: "postgres under pgbench",
        setup: r#"chmod 711 ..; chmod 777 .
AS="setpriv --reuid postgres --regid postgres --clear-groups"
$AS initdb -D data -A trust > /dev/null
$AS pg_ctl -D data -w -o "-p 48132 -k ''" -l log start > /dev/null
createdb -h 127.0.0.1 -p 48132 -U postgres bench
pgbench -h 127.0.0.1 -p 48132 -U postgres -i -s 1 bench
$AS pg_ctl -D data -w stop > /dev/null"#,
        script: r#"setpriv --reuid postgres --regid postgres --clear-groups $UNDER postgres -D data -p 48132 -k '' & server=$!
until pg_isready -q -h 127.0.0.1 -p 48132; do sleep 0.05; done
pgbench -h 127.0.0.1 -p 48132 -U postgres -n -S -c 2 -t 8000 bench > /dev/null
kill -INT $server; wait $server; echo $?"#,
        kind: Kind::Other,
    },
    Program {
        name: "java",
        setup: "javac Work.java",
        script: "$UNDER java -XX:TieredStopAtLevel=1 Work; echo $?",
        kind: Kind::Other,
    },
    Program {
        name: "go, by `--pid`",
        setup: r#"GOCACHE="$PWD/cache" GOFLAGS=-mod=mod go build -o gopher work.go"#,
        script: r#"./gopher & program=$!
if test -n "$ATTACH"; then $ATTACH --pid $program & recorder=$!; fi
wait $program; echo $?
if test -n "$ATTACH"; then wait $recorder; fi"#,
        kind: Kind::Outside,
    },
];

/// Sources of programs, by their names.
const FILES: [(&str, &str); 6] = [
    (
        "templates.cc",
        r#"#include <cstdio>
#include <map>
#include <vector>
template <typename T> __attribute__((noinline)) T fill(std::vector<T> &to, T seed) {
    for (auto &one : to) { seed = seed * T(1103515245) + T(12345); one = seed; }
    return seed;
}
template <typename T> __attribute__((noinline)) T sum(const std::vector<T> &of) {
    T all = 0;
    for (int turn = 0; turn < 3; turn++) for (auto one : of) all += one ^ (all >> 3);
    return all;
}
template <typename K> __attribute__((noinline)) unsigned count(std::map<K, unsigned> &seen, const std::vector<K> &of) {
    for (auto one : of) seen[one % K(509)]++;
    return seen.size();
}
int main() {
    std::vector<unsigned> small(20000); std::vector<unsigned long> large(20000);
    std::map<unsigned, unsigned> seen; unsigned long all = 0;
    for (unsigned turn = 0; turn < 9000; turn++) {
        all += fill(small, turn) + fill<unsigned long>(large, turn) + sum(small) + sum(large);
        if (turn % 3 == 0) all += count(seen, small);
    }
    std::printf("%lu\n", all);
    return 0;
}
"#,
    ),
    (
        "work.js",
        r#"function mix(a, n) { let s = 0; for (let i = 0; i < n; i++) { s = (s * 31 + a[i % a.length]) | 0; } return s; }
function text(n) { const m = new Map(); for (let i = 0; i < n; i++) { const k = "k" + (i % 997); m.set(k, (m.get(k) || 0) + i); } return m.size; }
function sorted(n) { const a = []; for (let i = 0; i < n; i++) a.push((i * 7919) % 10007); a.sort((x, y) => x - y); return a[n >> 1]; }
let all = 0;
for (let turn = 0; turn < 100; turn++) { all += mix([1, 2, 3, turn], 8e6) + text(150000) + sorted(60000); }
console.log(all);
"#,
    ),
    (
        "work.py",
        r#"def mix(n):
    s = 0
    for i in range(n):
        s = (s * 31 + i) & 0xffffffff
    return s

def words(n):
    seen = {}
    for i in range(n):
        key = "k%d" % (i % 997)
        seen[key] = seen.get(key, 0) + i
    return len(seen)

print(sum(mix(150000) + words(100000) + sorted(range(100000), key=lambda x: -x)[0] for _ in range(100)))
"#,
    ),
    (
        "Work.java",
        r#"import java.util.HashMap;
public class Work {
    static int mix(int n) { int s = 0; for (int i = 0; i < n; i++) s = s * 31 + (i ^ (s >>> 3)); return s; }
    static int words(int n) { var seen = new HashMap<String, Integer>(); for (int i = 0; i < n; i++) seen.merge("k" + i % 997, i, Integer::sum); return seen.size(); }
    public static void main(String[] arguments) {
        long all = 0;
        for (int turn = 0; turn < 30; turn++) all += mix(20_000_000) + words(200_000);
        System.out.println(all);
    }
}
"#,
    ),
    (
        "work.go",
        r#"package main

import "fmt"

//go:noinline
func mix(n uint32) (s uint32) {
	for i := uint32(0); i < n; i++ {
		s = s*31 + (i ^ s>>3)
	}
	return
}

//go:noinline
func words(n int) int {
	seen := map[string]int{}
	for i := 0; i < n; i++ {
		seen[fmt.Sprintf("k%d", i%997)] += i
	}
	return len(seen)
}

func main() {
	all := 0
	for turn := 0; turn < 60; turn++ {
		all += int(mix(20_000_000)) + words(150_000)
	}
	fmt.Println(all)
}
"#,
    ),
    (
        "nginx.conf",
        r#"daemon off; worker_processes 1; pid logs/pid;
events { worker_connections 64; }
http { access_log off; server { listen 127.0.0.1:48130; root .; } }
"#,
    ),
];
