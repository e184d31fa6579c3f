// Renders /openapi.json for people. Knows the parts of OpenAPI that the server's document uses.
// Everything from the document becomes text, never HTML. `try.js` sends requests.

import { make } from "./dom.js";
import { tryForm } from "./try.js";

function resolver(root) {
  return (value) => {
    if (!value?.$ref) return value ?? {};
    return value.$ref.slice(2).split("/").reduce((part, name) => part[name], root);
  };
}

function typeName(schema, resolve) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeName(one, resolve)).join(" | ");
  if (schema.type === "array") return `list of ${typeName(schema.items, resolve)}`;
  return schema.format ? `${schema.type} (${schema.format})` : (schema.type ?? "any");
}

function limits(schema) {
  const names = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default"];
  return names.filter((name) => name in schema).map((name) => `${name} ${schema[name]}`).join(", ");
}

// The fields of an object, and below them those of the objects inside it.
function fieldRows(schema, resolve, prefix = "", seen = []) {
  const rows = [];
  for (const [name, raw] of Object.entries(schema.properties ?? {})) {
    const field = resolve(raw);
    const needed = schema.required?.includes(name);
    const notes = [field.description, limits(field)].filter(Boolean).join(" ");
    rows.push(make("tr", {},
      make("th", { scope: "row" }, make("code", { text: prefix + name })),
      make("td", {}, make("span", { class: "type", text: typeName(raw, resolve) }),
        needed && make("span", { text: ", required" })),
      make("td", { class: "note", text: notes })));
    const inner = field.type === "array" ? resolve(field.items) : field;
    const variants = inner.anyOf?.map(resolve) ?? [inner];
    const suffix = field.type === "array" ? "[]." : ".";
    for (const variant of variants) {
      if (variant.type === "object" && !seen.includes(variant)) {
        rows.push(...fieldRows(variant, resolve, prefix + name + suffix, [...seen, variant]));
      }
    }
  }
  return rows;
}

function schemaTable(schema, resolve) {
  const whole = resolve(schema);
  const rows = fieldRows(whole, resolve);
  return [
    whole.description && make("p", { class: "note", text: whole.description }),
    rows.length > 0 && make("table", {}, make("tbody", {}, ...rows)),
  ].filter(Boolean);
}

function contents(content, resolve) {
  return Object.entries(content ?? {}).flatMap(([kind, { schema }]) => [
    make("p", {}, make("code", { text: kind })),
    ...schemaTable(schema, resolve),
  ]);
}

function answers(operation, resolve) {
  return Object.entries(operation.responses).map(([status, raw]) => {
    const answer = resolve(raw);
    const title = `${status === "default" ? "Errors" : status}: ${answer.description}`;
    return make("details", {}, make("summary", { text: title }), ...contents(answer.content, resolve));
  });
}

function endpoint(path, method, operation, root, key) {
  const resolve = resolver(root);
  const body = make("div", {});
  const details = make("details", { class: "endpoint", id: operation.operationId },
    make("summary", {},
      make("span", { class: "method", text: method.toUpperCase() }),
      make("span", { class: "path", text: path }), ` ${operation.summary}`),
    body);
  details.addEventListener("toggle", () => { // many forms are never opened
    if (body.childElementCount > 0) return;
    body.append(...[
      operation.description && make("p", { text: operation.description }),
      ...(operation.requestBody
        ? [make("h3", { text: "Request" }), ...contents(operation.requestBody.content, resolve)]
        : []),
      make("h3", { text: "Answers" }),
      ...answers(operation, resolve),
      make("h3", { text: "Try it" }),
      tryForm(path, method, operation, resolve, key),
    ].filter(Boolean));
  });
  return details;
}

function show(root) {
  document.getElementById("version").textContent = root.info.version;
  document.getElementById("about").textContent = root.info.description;
  const operations = Object.entries(root.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })));
  const needsKey = operations.some(({ operation }) => operation.security.length > 0);
  document.getElementById("key-field").hidden = !needsKey;
  const key = () => document.getElementById("key").value.trim();
  const tags = [...new Set(operations.flatMap(({ operation }) => operation.tags))];
  document.getElementById("endpoints").replaceChildren(...tags.map((tag) =>
    make("section", { "aria-label": tag }, make("h2", { text: tag }),
      ...operations.filter(({ operation }) => operation.tags.includes(tag)).map(
        ({ path, method, operation }) => endpoint(path, method, operation, root, key)))));
  const chosen = document.getElementById(location.hash.slice(1));
  if (chosen) chosen.open = true;
}

try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  show(await answer.json());
} catch (error) {
  const text = `The document cannot be loaded (${error.message}). Is the server running?`;
  document.getElementById("endpoints").replaceChildren(
    make("p", { class: "wrong", role: "alert", text }));
}
