// What a request costs inside the VM: runs builds of the filter in Node's V8, which is Envoy's, too, with a host that
// answers at once. Nothing of Envoy is in it, and little noise, so that it tells builds apart that `make bench-cost` does not.
//
//   node tools/bench-vm.mjs [MODULE …]     the first one is what the others are compared with
//
// Per build: "warm", one request after the other, and "cold", with the processor's caches emptied before each request, as
// other work does it in a real proxy; medians of rounds in which the builds take turns, in nanoseconds, and the difference.
import { readFileSync } from "node:fs";

const ROUNDS = 15, WARM = 50_000, COLD = 300, TICK_EVERY = 1_000, FIRST = 100_000;
const ENDPOINTS = 8, MODELS = 16, EVICT_BYTES = 4 << 20;

const text = (value) => Buffer.from(value, "latin1");
const number = (value) => { const bytes = Buffer.alloc(8); bytes.writeBigUInt64LE(BigInt(value)); return bytes; };
const address = (n) => `127.0.0.1:${8001 + n}`;

const config = text(JSON.stringify({ pools: [{
  cluster: "model-servers",
  endpoints: [...Array(ENDPOINTS).keys()].map((n) => ({ id: `gpu-${n}`, address: address(n) })),
}] }));

/// A header list in proxy-wasm's layout: the count, all lengths, then names and values, each ended by a zero byte.
function headers(model) {
  const list = Object.entries({
    ":authority": "inference", ":path": "/v1/chat/completions", ":method": "POST", ":scheme": "http",
    "content-type": "application/json", "content-length": "120", "user-agent": "bench", "x-model-id": model,
    "x-forwarded-proto": "http", "x-request-id": "b9a7b2a8-6c52-4a9e-8f0a-2f1d0d5e8a11",
  }).map(([name, value]) => [text(name), text(value)]);
  const lengths = Buffer.alloc(4 + 8 * list.length);
  lengths.writeUInt32LE(list.length, 0);
  list.flat().forEach((part, n) => lengths.writeUInt32LE(part.length, 4 + 4 * n));
  return Buffer.concat([lengths, ...list.flat().flatMap((part) => [part, Buffer.alloc(1)])]);
}

class Vm {
  constructor(path) {
    this.path = path;
    this.now = 1_000_000_000_000n;
    this.context = 2;
    this.served = 0;
    this.requests = [...Array(MODELS).keys()].map((n) => headers(`model-${n}`));
    this.properties = {
      "xds\0cluster_name": text("model-servers"), "upstream\0request_attempt_count": number(1),
      "response\0code": number(200), "response\0flags": number(0),
    };
    const module = new WebAssembly.Module(readFileSync(path));
    const imports = {};
    const host = this.host();
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      (imports[from] ??= {})[name] = host[name] ?? (() => 0);
    }
    this.exports = new WebAssembly.Instance(module, imports).exports;
    this.exports._initialize();
    this.exports.proxy_on_context_create(1, 0);
    this.exports.proxy_on_vm_start(1, 0);
    if (!this.exports.proxy_on_configure(1, config.length)) throw new Error(`${path} refuses its configuration`);
    this.tick();
  }

  host() {
    const memory = () => this.exports.memory.buffer;
    const view = () => new DataView(memory());
    const read = (at, length) => Buffer.from(memory(), at, length).toString("latin1");
    const give = (value, at, size) => {
      const place = this.exports.proxy_on_memory_allocate(value.length);
      new Uint8Array(memory()).set(value, place);
      view().setUint32(at, place, true);
      view().setUint32(size, value.length, true);
      return 0;
    };
    let metrics = 0;
    const time = (at) => { view().setBigUint64(at, this.now, true); return 0; };
    const absent = () => 1;
    return {
      proxy_get_property: (name, length, at, size) => {
        const value = this.properties[read(name, length)];
        return value === undefined ? 1 : give(value, at, size);
      },
      proxy_get_buffer_bytes: (_kind, _start, _max, at, size) => give(config, at, size),
      proxy_get_header_map_pairs: (_map, at, size) => give(this.headers, at, size),
      proxy_get_header_map_value: absent,
      proxy_replace_header_map_value: (_map, name, length, value, size) => {
        if (read(name, length) === "x-gateway-destination-endpoint") this.destination = [value, size];
        return 0;
      },
      proxy_define_metric: (_kind, _name, _length, at) => { view().setUint32(at, ++metrics, true); return 0; },
      proxy_get_shared_data: absent,
      proxy_get_current_time_nanoseconds: time,
      clock_time_get: (_clock, _precision, at) => time(at),
      random_get: (at, length) => { new Uint8Array(memory(), at, length).fill(7); return 0; },
      environ_sizes_get: (count, size) => { view().setUint32(count, 0, true); view().setUint32(size, 0, true); return 0; },
      proxy_log: (_level, at, length) => { console.error(read(at, length)); return 0; },
    };
  }

  tick() {
    this.now += 100_000_000n;
    this.exports.proxy_on_tick?.(1);
  }

  request() {
    const context = ++this.context;
    this.headers = this.requests[context % MODELS];
    this.now += 50_000n;
    this.destination = undefined;
    this.exports.proxy_on_context_create(context, 1);
    this.exports.proxy_on_request_headers(context, 10, 0);
    this.exports.proxy_on_request_body?.(context, 120, 1);
    if (this.destination) {
      const list = Buffer.from(this.exports.memory.buffer, ...this.destination);
      const end = list.indexOf(0x2c);
      this.properties["upstream\0address"] = Buffer.from(end < 0 ? list : list.subarray(0, end));
      this.served++;
    }
    this.exports.proxy_on_log(context);
    this.exports.proxy_on_delete(context);
  }

  /// Nanoseconds per request.
  warm(count) {
    const start = process.hrtime.bigint();
    for (let n = 0; n < count; n++) {
      if (n % TICK_EVERY === 0) this.tick();
      this.request();
    }
    return Number(process.hrtime.bigint() - start) / count;
  }
}

const junk = new Int32Array(EVICT_BYTES / 4);
function cold(vms) {
  const times = vms.map(() => []);
  for (let n = 0; n < COLD; n++) {
    vms.forEach((vm, at) => {
      for (let word = 0; word < junk.length; word += 16) junk[word]++;
      const start = process.hrtime.bigint();
      vm.request();
      times[at].push(Number(process.hrtime.bigint() - start));
    });
  }
  return times.map(median);
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

const paths = process.argv.slice(2);
if (paths.length === 0) paths.push("target/wasm/warmroute_filter.wasm");
const vms = paths.map((path) => new Vm(path));
vms.forEach((vm) => vm.warm(FIRST));
for (const vm of vms) if (vm.served !== FIRST) throw new Error(`${vm.path} picked for ${vm.served} of ${FIRST} requests`);
const rounds = { warm: vms.map(() => []), cold: vms.map(() => []) };
for (let round = 0; round < ROUNDS; round++) {
  vms.forEach((vm, at) => rounds.warm[at].push(vm.warm(WARM)));
  cold(vms).forEach((time, at) => rounds.cold[at].push(time));
}
console.log(`nanoseconds a request in the VM, ${ROUNDS} rounds, Node.js ${process.version} (V8 ${process.versions.v8})`);
vms.forEach((vm, at) => {
  const say = (kind) => {
    const own = rounds[kind];
    const difference = median(own[at].map((time, round) => time - own[0][round]));
    return `${kind} ${median(own[at]).toFixed(0)}` + (at > 0 ? ` (${difference < 0 ? "−" : "+"}${Math.abs(difference).toFixed(0)})` : "");
  };
  console.log(`  ${say("warm").padEnd(22)} ${say("cold").padEnd(22)} ${vm.path}`);
});
