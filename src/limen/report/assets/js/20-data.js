// The data of the page, and the responses, which lie in compressed chunks that are unpacked when a problem is opened.
const DATA = JSON.parse(byId("data").textContent);
const unpacked = new Map();
const waiting = new Map();

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// Files beside the page call this with their own chunk.
window.limenChunk = (number, base64) => {
  const resolve = waiting.get(number);
  if (resolve) resolve(base64);
};

function fromFile(number) {
  return new Promise((resolve, reject) => {
    waiting.set(number, resolve);
    const script = document.createElement("script");
    script.src = `${DATA.folder}/chunk-${number}.js`;
    script.onerror = () => reject(new Error(`The folder “${DATA.folder}” must lie beside this page to show these responses.`));
    document.head.append(script);
  });
}

function chunk(number) {
  if (!unpacked.has(number)) {
    const node = byId(`chunk-${number}`);
    const source = node ? Promise.resolve(JSON.parse(node.textContent)) : fromFile(number);
    unpacked.set(number, source.then(inflate));
    unpacked.get(number).catch(() => unpacked.delete(number));
  }
  return unpacked.get(number);
}

async function details(index) {
  const slot = DATA.problems.slot[index];
  return (await chunk(Math.floor(slot / DATA.chunk_size)))[slot % DATA.chunk_size];
}
