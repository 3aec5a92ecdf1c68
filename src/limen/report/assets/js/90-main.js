// Light and dark, then draw everything.
function theme() {
  const root = document.documentElement, button = byId("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  let choice = null;
  try { choice = localStorage.getItem("limen-theme"); } catch { choice = null; }
  const apply = () => {
    const value = choice || (dark.matches ? "dark" : "light");
    root.setAttribute("data-theme", value);
    button.textContent = value === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent} colours`);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    choice = root.getAttribute("data-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("limen-theme", choice); } catch { /* private mode: the choice lasts until the page is closed */ }
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

theme();
flips();
curves();
flow();
budgets();
checkpoints();
training();
lengths();
modes();
explorer();
live();
document.documentElement.setAttribute("data-ready", "true");
