// One problem: the prompt, the gold answer, and the responses of the policies side by side.
function tokens(response, scorer) {
  const values = response.tokens_by[scorer];
  return values.map((v, i) => h("span", { title: `${v.toFixed(3)} nats`, css: { background: `color-mix(in srgb, var(--lost) ${Math.min(70, Math.round(-v * 18))}%, transparent)` } }, plain(response.pieces[i] ?? "▪")));
}

function responseView(r) {
  const text = h("div", { class: "text", dir: "auto", tabindex: 0, role: "region", "aria-label": `sample ${r.i}` });
  const write = () => text.replaceChildren(...(r.left ? cutText(r) : plain(r.text || "")), r.text ? "" : h("span", { class: "cut" }, "(empty response)"));
  write();
  const scorers = Object.keys(r.tokens_by || {});
  const scores = Object.entries(r.scores || {}).map(([name, v]) => h("span", null, `log p ${name}: ${v.toFixed(3)}/token`));
  const paint = scorers.map((name) => h("button", { type: "button", class: "quiet", on: { click: (e) => {
    const on = e.currentTarget.getAttribute("aria-pressed") !== "true";
    e.currentTarget.setAttribute("aria-pressed", String(on));
    if (on) text.replaceChildren(...tokens(r, name)); else write();
  } } }, `colour tokens by ${name}`));
  return h("div", { class: "resp" }, h("div", { class: "meta" }, h("span", { class: `tag ${r.outcome}` }, r.outcome.replace("_", " ")), r.answer ? [h("span", null, "answer ", h("b", null, plain(clip(r.answer, 120))))] : null,
    r.rule ? h("span", null, `by ${r.rule}`) : null, h("span", null, `sample ${r.i}`), r.tokens ? h("span", null, `${r.tokens} tokens`) : null, r.finish === "length" ? h("span", null, "truncated") : null, scores, paint), text);
}

function cutText(r) {
  return [...plain(r.text.slice(0, r.cut)), h("span", { class: "cut" }, `\n… ${r.left.toLocaleString("en")} characters left out here; the run folder has them …\n`), ...plain(r.text.slice(r.cut))];
}

// What the exact tests say of this problem alone.
function judged(c, i) {
  const flip = ["shrunk", "expanded", "undetermined"].includes(c.verdict[i]);
  const said = flip ? `${c.verdict[i]}${c.evidence[i] ? ` (${c.evidence[i]})` : ""}` : "";
  const rate = c.rate[i] && c.rate[i] !== "same" ? `success rate ${c.rate[i]}` : "";
  return h("small", null, [said, rate].filter(Boolean).join(" · "));
}

// Of policies that were sampled at several checkpoints: when was this problem lost, does it come back?
function history(i) {
  const families = [...new Set(DATA.policies.filter((p) => !p.last).map((p) => p.family))];
  return families.map((family) => {
    const points = DATA.policies.map((p, j) => ({ p, j })).filter((x) => x.p.family === family && x.p.role === "trained");
    points.sort((a, b) => a.p.step - b.p.step);
    return h("p", { class: "small" }, `${family}, correct by step: `, [{ p: { step: "base" }, j: 0 }, ...points].map((x) => `${x.p.step}: ${P.c[x.j][i]}/${P.n[x.j][i]}`).join(" · "));
  });
}

function problem(i, d) {
  const counts = h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "policy"), h("th", { scope: "col", class: "num" }, "correct"), h("th", { scope: "col" }, "against the base"))),
    h("tbody", null, DATA.policies.map((p, j) => {
      const c = DATA.contrasts.find((x) => x.policy === j), n = P.n[j][i];
      return h("tr", null, h("th", { scope: "row" }, p.name), h("td", { class: "num" }, n ? `${P.c[j][i]} of ${n}` : "–"),
        h("td", null, c ? [h("span", { class: `tag ${CHANGE[c.change[i]]}` }, CHANGE[c.change[i]]), " ", judged(c, i)] : ""));
    })));
  const sides = DATA.policies.map((p, j) => {
    const own = d.responses.filter((r) => r.p === j), answers = (d.answers || [])[j] || [];
    if (!own.length && !answers.length) return null;
    return h("div", { class: "side" }, h("h4", null, p.name),
      answers.length ? h("ul", { class: "answers" }, answers.map(([a, outcome, n]) => h("li", null, h("span", { class: `tag ${outcome}` }, `${n}×`), h("span", { class: "a", title: a }, a ? plain(clip(a, 80)) : h("em", null, "no answer"))))) : null,
      own.map(responseView));
  });
  return [
    d.problem ? [h("h4", null, "Problem"), h("div", { class: "text", dir: "auto" }, plain(d.problem))] : [],
    d.gold ? [h("h4", null, "Gold answer"), h("div", { class: "text", dir: "auto" }, plain(d.gold))] : [],
    [h("h4", null, "Successes"), counts], history(i),
    sides.some(Boolean) ? [h("h4", null, "Answers and responses"), h("div", { class: "sides" }, sides)] : [h("p", { class: "empty" }, "No responses are stored for this problem.")],
  ].flat(2);
}
