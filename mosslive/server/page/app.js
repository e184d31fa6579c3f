// Connects the controls of the page to a call.

import { Call, Ended } from "./call.js";
import { find } from "./elements.js";
import { inWords, stateInWords } from "./errors.js";
import { EventLog } from "./event-log.js";
import { ServerWatch } from "./health.js";
import { Log } from "./log.js";
import { MicrophoneCheck, listDevices, useSpeaker } from "./microphone.js";
import { Recorder } from "./recorder.js";
import { saveSound, saveText } from "./save.js";
import { Refused, modelInfo, version } from "./server.js";
import { apiKey, holdsToTalk, setApiKey } from "./settings.js";
import { suggest } from "./suggestions.js";
import { View } from "./view.js";
import { connectVoices, listVoices } from "./voices.js";
import { Waves } from "./waves.js";

const log = new Log();
const view = new View(log);
const check = new MicrophoneCheck();
const page = {
  view,
  log,
  waves: new Waves(find("waves")),
  recorder: new Recorder(() => (find("save-sound").disabled = false)),
  events: new EventLog(),
  ended(ended) {
    if (call === ended) call = null;
  },
};
let call = null; // the current one

page.watch = new ServerWatch((health) => {
  view.setIdle(stateInWords(health), health.state === "loading");
  if (health.state === "ready") learn();
});

// Asks for the model, its voices and what it can do.
async function learn() {
  try {
    const model = await modelInfo(apiKey());
    const software = await version();
    view.server(model.id, `mosslive ${software.version}`);
    if (model.capabilities?.transcripts === false) view.noCaptions();
    suggest(software.bundled, write);
    find("key-form").hidden = true;
    await listVoices();
  } catch (error) {
    complain(error, error.status === 401 && !apiKey());
  }
}

// Shows an error. `quiet`: the form for the key says enough.
function complain(error, quiet = false) {
  if (error instanceof Refused && error.status === 401) view.askForKey();
  view.error(quiet ? "" : inWords(error));
}

async function begin(withMicrophone) {
  check.stop();
  view.error("");
  const begun = (call = new Call(page));
  await attempt(begun, () => begun.begin(withMicrophone));
}

async function attempt(begun, work) {
  try {
    await work();
  } catch (error) {
    if (begun.over || error instanceof Ended) return;
    begun.end();
    complain(error);
  }
}

// Takes the microphone in a call, or another one. The call goes on if that fails.
async function useMicrophone(current) {
  view.error("");
  try {
    await current.useMicrophone();
  } catch (error) {
    if (current.over) return;
    complain(error);
    current.conversation.show();
  }
}

// Sends a text, in a new call if there is none. What cannot be sent stays in the field.
async function write(text) {
  if (!call) await begin(false);
  if (call?.write(text)) return;
  const { value } = find("text"); // typed meanwhile
  find("text").value = value ? `${text} ${value}` : text;
  if (call) view.textWaits(true);
}

// The buttons.

find("talk").addEventListener("click", () => {
  if (!call) begin(true);
  else if (view.mode === "connecting") call.end();
  else if (view.mode === "writing") useMicrophone(call);
  else if (!holdsToTalk()) call.mute(!call.muted);
});
find("hang-up").addEventListener("click", () => call?.end());
find("interrupt").addEventListener("click", () => call?.interrupt());
find("check").addEventListener("click", () => {
  if (check.on) check.stop();
  else check.start().then(() => view.error(""), complain);
});
find("clear").addEventListener("click", () => log.clear());
find("save-text").addEventListener("click", () => saveText(log));
find("save-sound").addEventListener("click", () => {
  saveSound(page.recorder, find("sides").value === "both");
});

// Push to talk: by pointer, and by the space bar wherever no text is typed.

const holding = () => view.mode === "talking" && holdsToTalk();
find("talk").addEventListener("pointerdown", (event) => {
  if (!holding()) return;
  find("talk").setPointerCapture(event.pointerId);
  call.push.press();
});
for (const end of ["pointerup", "pointercancel"]) {
  find("talk").addEventListener(end, () => call?.push.release());
}
find("talk").addEventListener("contextmenu", (event) => holding() && event.preventDefault());
const typing = (target) => target.matches("input, textarea, select, button:not(#talk), summary");
addEventListener("keydown", (event) => {
  if (event.key === "Escape") call?.interrupt();
  if (event.key !== " " || !holding() || typing(event.target)) return;
  event.preventDefault();
  if (!event.repeat) call.push.press();
});
addEventListener("keyup", (event) => {
  if (event.key === " ") call?.push.release();
});

// The forms.

find("write").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = find("text").value.trim();
  find("text").value = "";
  if (text) write(text);
});
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setApiKey(find("key").value.trim());
  view.error("");
  learn();
});
find("options").addEventListener("submit", (event) => event.preventDefault());
find("options").addEventListener("change", ({ target }) => {
  const { id } = target;
  if (id === "microphone" && call?.microphone) useMicrophone(call);
  else if (id === "microphone" && check.on) check.start(check.stop()).catch(complain);
  else if (id === "speaker") useSpeaker(find("sink"), call?.context).catch(complain);
  else if (id === "log-events") page.events.show();
  else if (id === "voice" && call?.conversation.spoken) {
    view.hint("The voice changes in the next call.");
  } else if (!["microphone", "transport", "sides", "voice-file"].includes(id)) {
    if (call && view.mode !== "connecting") {
      view.call(view.mode);
      call.change();
    }
  }
});
connectVoices(view);

// The page itself.

// Phones suspend the audio of a page in the background.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) call?.context.resume();
});
addEventListener("pagehide", () => call?.end());
navigator.mediaDevices?.addEventListener("devicechange", listDevices);
listDevices();
log.changed();

// A link may carry a key, `#key=ek_…`; it is removed from the address bar.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  setApiKey(given);
  history.replaceState(null, "", location.pathname + location.search);
}
