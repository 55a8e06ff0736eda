// Who looks: asks for a key, or leads to the page of a provider, where the gateway wants to know; says who is signed in,
// and signs out. No script keeps the key: the gateway answers it with a cookie that none can read.

import { ApiError, UNAUTHORIZED, get, request, session, withQuery } from "../http/api.js";
import { button, dialog, field, h } from "./element.js";

let asking = false;

async function ask() {
  if (asking) return;
  asking = true;
  document.body.classList.add("signed-out"); // until the page is loaded again
  const ways = await get("/v1/sign-in").catch(() => ({ keys: true }));
  const back = withQuery(ways.login, { return_to: location.pathname + location.search + location.hash });
  const provider = ways.provider && h("p", null, button(`Sign in with ${ways.provider}`, () => location.assign(back), { class: "primary" }));
  const key = h("input", { type: "password", name: "key", required: true, autocomplete: "current-password" });
  const fields = ways.keys ? field("API key", key, "As `cadre keys create` printed it") : null;
  const box = dialog("Sign in", [provider, fields], ways.keys && "Sign in", async (data) => {
    const given = String(data.get("key")).trim();
    if (!/^[!-~]+$/.test(given)) throw new ApiError(401, "unauthorized", "this is no key");
    await request("POST", "/v1/session", undefined, undefined, { Authorization: `Bearer ${given}` });
    location.reload();
  });
  box.addEventListener("close", () => { asking = false; });
}

/** Asks for a key whenever the gateway refuses for want of one, and shows in `place` who is signed in. */
export function watchSignIn(place) {
  document.addEventListener(UNAUTHORIZED, ask);
  session().then(({ name }) => {
    if (!name) return; // nobody is asked who they are
    place.append(h("span", { class: "who" }, name), button("Sign out", async () => {
      await request("DELETE", "/v1/session");
      location.reload();
    }));
  }, () => {}); // an `ask` is on its way, or the gateway is not to be reached
}
