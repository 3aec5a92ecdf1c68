// A served page looks for a newer one, and keeps its place when it is replaced.
function live() {
  if (!DATA.refresh) return;
  const key = "limen-place";
  try {
    const place = sessionStorage.getItem(key);
    if (place) scrollTo(0, Number(place));
    sessionStorage.removeItem(key);
  } catch { /* private mode: the page starts at its top */ }
  let version = null;
  setInterval(async () => {
    if (document.hidden) return;
    let now = null;
    try { now = await (await fetch("version", { cache: "no-store" })).text(); } catch { return; }
    if (version === null) version = now;
    if (now === version) return;
    try { sessionStorage.setItem(key, String(scrollY)); } catch { /* as above */ }
    location.reload();
  }, 2000);
}
