"""Receives spans of OTLP over HTTP and compares them with the tasks of the collector at URL."""

import http.server
import json
import subprocess
import sys
import threading
import urllib.request

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2 as trace

emberline, url = sys.argv[1:]
received = []


class Receiver(http.server.BaseHTTPRequestHandler):
    busy = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        assert self.headers["x-tenant"] == "a", self.headers
        if Receiver.busy:  # The first message is refused once.
            Receiver.busy = False
            self.send_response(503)
            self.send_header("retry-after", "0")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        received.append(service.ExportTraceServiceRequest.FromString(body))
        answer = service.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()


def run(*arguments):
    command = [emberline, "tasks", "--url", url, "--from", "2000-01-01", "--format", "otlp", *arguments]
    environment = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=a"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120).stdout


run("--service", "fleet", "--send-to", f"http://127.0.0.1:{server.server_address[1]}")
with urllib.request.urlopen(f"{url}/api/v1/tasks?from=2000-01-01&limit=100000", timeout=120) as answer:
    answer = json.load(answer)
assert not answer["truncated"], "the golden store has more tasks than one answer"
ended = [task for task in answer["tasks"] if task["stop_ns"] is not None]
assert ended, "the golden store has no ended task"

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

expected = sorted(
    (task["worker"], task["name"], task["start_ns"], task["stop_ns"], task["outcome"]) for task in ended
)
values = lambda span: {each.key: each.value.string_value for each in span.attributes}
tasks = [(worker, span) for worker, span in spans.values() if "emberline.task.outcome" in values(span)]
found = sorted(
    (worker, span.name, span.start_time_unix_nano, span.end_time_unix_nano,
     values(span)["emberline.task.outcome"])
    for worker, span in tasks
)
assert found == expected, (found[:3], expected[:3], len(found), len(expected))
errors = sum(span.status.code == trace.Status.STATUS_CODE_ERROR for _, span in tasks)
assert errors == sum(task["outcome"] in ("failed", "panicked", "lost") for task in ended)

phases = [span for _, span in spans.values() if "emberline.task.outcome" not in values(span)]
assert len(phases) == sum(len(task["phases"]) for task in ended), len(phases)
for span in phases:
    assert spans[span.parent_span_id][1].trace_id == span.trace_id, "a phase is below its task"
children = sum(bool(span.parent_span_id) for _, span in tasks)
assert children == sum(task["parent"] is not None for task in ended), children

lines = [json.loads(line) for line in run().splitlines()]
ids = [
    span["spanId"]
    for line in lines
    for resource in line["resourceSpans"]
    for scope in resource["scopeSpans"]
    for span in scope["spans"]
]
assert sorted(ids) == sorted(id.hex() for id in spans), "the file has other spans than the receiver"
print(f"an OTLP receiver has {len(tasks)} tasks, {children} with a parent, and {len(phases)} phases")
