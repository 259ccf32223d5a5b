// The curve of today is drawn on the clocks of the viewer, unless the address names a zone.
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
const address = new URL(location.href);
if (own && own !== document.querySelector("[name=zone]").defaultValue && !address.searchParams.has("zone")) {
  address.searchParams.set("zone", own);
  location.replace(address);
}
for (const zone of Intl.supportedValuesOf?.("timeZone") ?? []) {
  document.querySelector("#zones").append(Object.assign(document.createElement("option"), { value: zone }));
}
