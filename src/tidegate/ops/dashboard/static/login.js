// The cookie is not sent with a request that another site led to. From here it is: who is logged in is led on.
if (!document.querySelector("[role=alert]")) {
  const wanted = new URLSearchParams(location.search).get("next") ?? "/";
  const answer = await fetch(location.href, { redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect" && /^\/(?![/\\])/.test(wanted)) location.replace(wanted);
}
