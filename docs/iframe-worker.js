// The search of the site on pages that are opened as files. Browsers start no Worker for these, so
// the script of the search runs in a hidden frame of the page instead. mkdocs.yml loads this file;
// its name keeps mkdocs-material from loading the like from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.ready = this.load(new URL(url, location.href).href);
    }

    async load(url) {
      const frame = Object.assign(document.createElement("iframe"), { hidden: true, srcdoc: "" });
      const loaded = new Promise((resolve) => { frame.onload = resolve; });
      document.body.append(frame);
      await loaded;
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      const run = new Promise((resolve) => { script.onload = resolve; });
      script.src = url;
      inside.document.body.append(script);
      await run;
      return inside;
    }

    async postMessage(data) {
      const inside = await this.ready;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }
  };
}
