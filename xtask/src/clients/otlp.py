"""Sends OTLP profiles by gRPC and HTTP to the collector at URL, and compares its answers."""

import json
import sys
import time
import urllib.request

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs

url = sys.argv[1]
PERIOD_NS = 10_000_000
LOAD_SAMPLES = 500
MAIN_SAMPLES = 30


def request(name):
    request = service.ExportProfilesServiceRequest()
    tables = request.dictionary
    tables.string_table.extend(["", "samples", "count", "cpu", "nanoseconds", "outer", "inner", "task"])
    for table in (tables.mapping_table, tables.location_table, tables.function_table,
                  tables.attribute_table, tables.stack_table):
        table.add()
    for function, text in ((1, 5), (2, 6)):
        tables.function_table.add(name_strindex=text)
        tables.location_table.add().lines.add(function_index=function, line=function)
    tables.attribute_table.add(key_strindex=7).value.string_value = "load"
    tables.stack_table.add(location_indices=[1])
    tables.stack_table.add(location_indices=[2, 1])
    resource = request.resource_profiles.add()
    resource.resource.attributes.add(key="service.name").value.string_value = name
    profile = resource.scope_profiles.add().profiles.add()
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 1, 2
    profile.period_type.type_strindex, profile.period_type.unit_strindex = 3, 4
    profile.period = PERIOD_NS
    profile.time_unix_nano = int((time.time() - 20) * 1e9)
    profile.duration_nano = 10_000_000_000
    profile.samples.add(stack_index=2, attribute_indices=[1], values=[LOAD_SAMPLES])
    times = [profile.time_unix_nano + number for number in range(MAIN_SAMPLES)]
    profile.samples.add(stack_index=1, timestamps_unix_nano=times)
    return request


def post(body, content_type):
    headers = {"content-type": content_type}
    request = urllib.request.Request(url + "/v1development/profiles", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


stub = stubs.ProfilesServiceStub(grpc.insecure_channel(url.split("://")[1]))
for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
    answer = stub.Export(request("by-grpc"), compression=compression, timeout=60)
    assert not answer.HasField("partial_success"), answer
answer = post(request("by-http").SerializeToString(), "application/x-protobuf")
assert not service.ExportProfilesServiceResponse.FromString(answer).HasField("partial_success")
text = json_format.MessageToJson(request("by-json"))
assert post(text.encode(), "application/json") == b"{}"

broken = request("broken")
broken.dictionary.stack_table[2].location_indices[0] = 99
try:
    stub.Export(broken, timeout=60)
    raise SystemExit("a location outside of its table was accepted")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    assert "location 99 is outside of a table of 3" in error.details(), error

for name, times in (("by-grpc", 2), ("by-http", 1), ("by-json", 1)):
    address = f"{url}/api/v1/profile?from=-5m&format=collapsed&worker=otlp:{name}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        stacks = sorted(answer.read().decode().splitlines())
    expected = sorted([
        f"load;outer;inner {LOAD_SAMPLES * PERIOD_NS * times}",
        f"{name};outer {MAIN_SAMPLES * PERIOD_NS * times}",
    ])
    assert stacks == expected, (stacks, expected)
with urllib.request.urlopen(f"{url}/api/v1/workers", timeout=60) as answer:
    pushes = json.load(answer)["pushes"]
assert [(each["source"], each["stored"], each["rejected"]) for each in pushes] == [("otlp", 4, 1)], pushes
print("OTLP profiles by gRPC and HTTP arrive with equal times")
