"""Receives spans of OTLP over HTTP and compares them with tasks: those of the golden store, which the collector
at URL exports, and those of a worker, which a collector forwards while it runs."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

PATIENCE_S = 120

emberline, url, worker = sys.argv[1:]


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        assert self.headers["x-tenant"] == "a", self.headers
        if self.server.busy:  # The first message is refused once.
            self.server.busy = False
            self.send_response(503)
            self.send_header("retry-after", "0")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.server.received.append(service.ExportTraceServiceRequest.FromString(body))
        answer = service.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def receiver():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.busy = True
    server.received = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def values(span):
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def spans_of(received):
    """Spans with their worker, by id."""
    spans = {}
    for message in received:
        for resource in message.resource_spans:
            attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert attributes["service.name"] == "fleet", attributes
            for scope in resource.scope_spans:
                for span in scope.spans:
                    assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
                    assert span.span_id not in spans, span
                    spans[span.span_id] = (attributes["emberline.worker"], span)
    return spans


def compare(url, received):
    """Compares what was received with all tasks of the collector. Returns the ids of the spans."""
    answer = get(url, "/api/v1/tasks?from=2000-01-01&limit=100000")
    assert not answer["truncated"], "the collector has more tasks than one answer"
    ended = [task for task in answer["tasks"] if task["stop_ns"] is not None]
    assert ended, "the collector has no ended task"
    spans = spans_of(received)
    expected = sorted(
        (task["worker"], task["name"], task["start_ns"], task["stop_ns"], task["outcome"], task["attempt"] or 0)
        for task in ended
    )
    tasks = [(worker, span) for worker, span in spans.values() if "emberline.task.outcome" in values(span)]
    found = sorted(
        (worker, span.name, span.start_time_unix_nano, span.end_time_unix_nano,
         values(span)["emberline.task.outcome"], values(span).get("emberline.task.attempt", 0))
        for worker, span in tasks
    )
    assert found == expected, (found[:3], expected[:3], len(found), len(expected))
    errors = sum(span.status.code == trace.Status.STATUS_CODE_ERROR for _, span in tasks)
    assert errors == sum(task["outcome"] in ("failed", "panicked", "lost") for task in ended)
    phases = [span for _, span in spans.values() if "emberline.task.outcome" not in values(span)]
    assert len(phases) == sum(len(task["phases"]) for task in ended), len(phases)
    for span in phases:
        assert spans[span.parent_span_id][1].trace_id == span.trace_id, "a phase is below its task"
    children = [span for _, span in tasks if span.parent_span_id]
    assert len(children) == sum(task["parent"] is not None for task in ended), len(children)
    for span in children:
        if span.parent_span_id in spans:
            assert spans[span.parent_span_id][1].trace_id == span.trace_id, "a child is in its parent's trace"
    print(f"an OTLP receiver has {len(tasks)} tasks, {len(children)} with a parent, and {len(phases)} phases")
    return sorted(id.hex() for id in spans)


def export():
    """The export of the golden store to a receiver and to a file."""
    server, target = receiver()

    def run(*arguments):
        command = [emberline, "tasks", "--url", url, "--from", "2000-01-01", "--format", "otlp", *arguments]
        environment = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a"}
        return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=PATIENCE_S).stdout

    run("--service", "fleet", "--send-to", target)
    sent = compare(url, server.received)
    ids = [
        span["spanId"]
        for line in map(json.loads, run().splitlines())
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert sorted(ids) == sent, "the file has other spans than the receiver"


def wait(what, condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def forward():
    """The tasks of a worker that runs and of one that is killed, as they end."""
    server, target = receiver()
    command = [emberline, "serve", "--listen", "127.0.0.1:0", "--forward-traces", target,
               "--forward-service", "fleet", "--forward-every", "200ms"]
    environment = dict(os.environ, OTEL_EXPORTER_OTLP_HEADERS="x-tenant=a")
    collector = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    doomed = None
    try:
        line = next(line for line in collector.stderr if "collector on " in line)
        threading.Thread(target=lambda: list(collector.stderr), daemon=True).start()
        own = line.split("collector on ")[1].split(";")[0]
        doomed = subprocess.Popen([worker, "doomed", "doomed", own], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        assert doomed.stdout.readline().strip() == "ready"
        doomed.send_signal(signal.SIGKILL)
        doomed.wait(PATIENCE_S)
        run = [worker, "traced", "traced", own]
        subprocess.run(run, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)

        def forwarded():
            tasks = get(own, "/api/v1/tasks?from=2000-01-01&limit=100000")["tasks"]
            [status] = get(own, "/api/v1/workers")["forwards"]
            assert status["lost_queue"] + status["lost_rejected"] == 0, status
            has_lost = any(task["outcome"] == "lost" for task in tasks)
            ended = all(task["stop_ns"] is not None for task in tasks)
            return has_lost and ended and status["sent"] == len(tasks)

        wait("all tasks to be forwarded", forwarded)
        compare(own, server.received)
    finally:
        for process in (doomed, collector):
            if process and process.poll() is None:
                process.terminate()
                process.wait(PATIENCE_S)


export()
forward()
