// Shows the OpenAPI description of the server: every operation with its fields and answers.

function make(name, ...children) {
  const element = document.createElement(name);
  element.append(...children);
  return element;
}

function makeTable(heads, rows) {
  const head = make("thead", make("tr", ...heads.map((text) => make("th", text))));
  const body = make("tbody", ...rows.map(([first, ...rest]) => make("tr", make("th", first), ...rest.map((cell) => make("td", cell)))));
  const scroll = make("div", make("table", head, body));
  scroll.className = "scroll";
  return scroll;
}

// A schema in a few words, such as `text, at most 20,000 characters`.
function describe(schema, schemas) {
  if (schema.$ref) return describe(schemas[schema.$ref.split("/").pop()], schemas);
  if (schema.anyOf && !schema.properties) return schema.anyOf.map((one) => describe(one, schemas)).join(", or ");
  if (schema.enum) return schema.enum.join(" or ");
  if (schema.const !== undefined) return String(schema.const);
  if (schema.prefixItems) return `list of ${schema.prefixItems.map((one) => describe(one, schemas)).join(" and ")}`;
  const most = schema.maxLength ?? schema.maxItems ?? schema.maximum;
  const limit = most === undefined ? "" : `, at most ${most.toLocaleString("en")}${schema.maxLength ? " characters" : ""}`;
  if (schema.type === "array") return `list of ${describe(schema.items, schemas)}${limit}`;
  if (schema.type === "object") return schema.title || "object";
  const names = { string: "text", integer: "whole number", null: "nothing" };
  return (names[schema.type] || schema.type || "anything") + limit;
}

function describeFields(schema, schemas) {
  const required = new Set(schema.required || []);
  return Object.entries(schema.properties || {}).map(([name, field]) => [
    make("code", name),
    describe(field, schemas),
    required.has(name) ? "yes" : "no",
    field.description || "",
  ]);
}

function resolve(schema, schemas) {
  return schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema?.items ? resolve(schema.items, schemas) : schema;
}

function showOperation(path, method, operation, schemas) {
  const label = make("span", method.toUpperCase());
  label.className = "method";
  const section = make("section", make("h2", label, make("code", path)), make("p", operation.description || operation.summary || ""));
  section.className = "operation";
  const bodies = Object.entries(operation.requestBody?.content || {});
  if (bodies.length) {
    const [, { schema }] = bodies[0];
    section.append(make("h3", "Fields"), make("p", `Content types: ${bodies.map(([type]) => type).join(", ")}.`));
    section.append(makeTable(["name", "value", "required", ""], describeFields(schema, schemas)));
    const pairs = (schema.anyOf || []).map((one) => `${one.properties.source.enum.join(", ")} → ${one.properties.target.enum.join(", ")}`);
    if (pairs.length) section.append(make("p", `Languages: ${pairs.join("; ")}.`));
  }
  const answer = resolve(operation.responses["200"]?.content?.["application/json"]?.schema, schemas);
  if (answer?.properties) {
    section.append(make("h3", "Answer"), makeTable(["name", "value", "always", ""], describeFields(answer, schemas)));
  }
  const errors = Object.entries(operation.responses).filter(([status]) => status !== "200");
  section.append(make("h3", "Errors"), makeTable(["status", "meaning"], errors.map(([status, one]) => [status, one.description])));
  return section;
}

const description = await (await fetch("openapi.json")).json();
document.getElementById("description").textContent = description.info.description;
for (const [path, operations] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(operations)) {
    document.getElementById("operations").append(showOperation(path, method, operation, description.components.schemas));
  }
}
