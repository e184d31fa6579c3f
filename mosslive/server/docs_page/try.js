// The form that sends one request and shows the answer: JSON, text, lines as they come, or sound.
// Knows requests, not what endpoints do.

import { make } from "./dom.js";

function example(schema, resolve) {
  const whole = resolve(schema);
  if (whole.examples) return whole.examples[0];
  const pairs = (whole.required ?? []).map((name) => [name, ""]);
  return Object.fromEntries(pairs);
}

function formField(name, schema, needed) {
  const attributes = { name, required: needed };
  if (schema.format === "binary") return make("input", { ...attributes, type: "file" });
  if (schema.enum) {
    return make("select", attributes, make("option", { value: "", text: "" }),
      ...schema.enum.map((one) => make("option", { value: one, text: one })));
  }
  return make("input", { ...attributes, type: "text" });
}

// The inputs of the body, and a function that makes the body from them.
function bodyInputs(operation, resolve) {
  const content = operation.requestBody?.content ?? {};
  if (content["application/json"]) {
    const text = JSON.stringify(example(content["application/json"].schema, resolve), null, 2);
    const area = make("textarea", { name: "body", spellcheck: "false", text });
    return {
      inputs: [make("label", {}, "Body (JSON)", area)],
      read: () => ({ body: area.value, type: "application/json" }),
    };
  }
  if (content["multipart/form-data"]) {
    const schema = resolve(content["multipart/form-data"].schema);
    const inputs = Object.entries(schema.properties).map(([name, raw]) => {
      const field = resolve(raw);
      const needed = schema.required?.includes(name);
      return make("label", {}, `${name}${needed ? " (required)" : ""}`, formField(name, field, needed));
    });
    const read = () => {
      const form = new FormData();
      for (const input of inputs.map((label) => label.querySelector("input, select"))) {
        const value = input.type === "file" ? input.files[0] : input.value;
        if (value) form.append(input.name, value);
      }
      return { body: form };
    };
    return { inputs, read };
  }
  return { inputs: [], read: () => ({}) };
}

async function showText(answer, output) {
  const area = output.appendChild(make("pre", { tabindex: "0" }));
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
    area.textContent += part.value;
  }
  try {
    area.textContent = JSON.stringify(JSON.parse(area.textContent), null, 2);
  } catch { /* it is not JSON */ }
}

async function showAnswer(answer, output) {
  const kind = answer.headers.get("content-type") ?? "";
  if (!kind.startsWith("audio/")) {
    await showText(answer, output);
    return;
  }
  const sound = await answer.blob();
  output.append(make("p", { class: "note", text: `${kind}, ${sound.size} bytes` }));
  if (kind !== "audio/pcm") { // browsers play files, not samples
    output.append(make("audio", { controls: true, src: URL.createObjectURL(sound) }));
  }
}

export function tryForm(path, method, operation, resolve, key) {
  const inPath = (operation.parameters ?? []).filter((one) => one.in === "path").map((one) =>
    make("label", {}, one.name, make("input", { name: one.name, required: true, type: "text" })));
  const { inputs, read } = bodyInputs(operation, resolve);
  const button = make("button", { type: "submit", text: "Send" });
  const output = make("div", { role: "status" });
  const form = make("form", {}, ...inPath, ...inputs, button, output);

  async function send() {
    let url = path.slice(1); // relative, so that a server below a path of a proxy works
    for (const input of inPath.map((label) => label.querySelector("input"))) {
      url = url.replace(`{${input.name}}`, encodeURIComponent(input.value));
    }
    const { body, type } = read();
    const headers = new Headers(type ? { "content-type": type } : {});
    if (operation.security.length > 0 && key()) headers.set("authorization", `Bearer ${key()}`);
    const began = performance.now();
    const answer = await fetch(url, { method: method.toUpperCase(), headers, body });
    const took = Math.round(performance.now() - began);
    output.append(make("p", {
      class: answer.ok ? "note" : "wrong", text: `Status ${answer.status} after ${took} ms`,
    }));
    await showAnswer(answer, output);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.replaceChildren();
    button.disabled = true;
    try {
      await send();
    } catch (error) {
      output.append(make("p", { class: "wrong", text: `No answer: ${error.message}` }));
    } finally {
      button.disabled = false;
    }
  });
  return form;
}
