// Browsers refuse to start a worker for a page that was opened from the disk, and the search runs in one. There, run its
// script in a hidden frame instead, so that the search works without a server. On a server nothing changes.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // What the script posts comes here; what is posted to the worker is an event inside.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.frame.contentDocument.createElement("script");
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = reject;
      });
      script.src = url;
      this.frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.loaded.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = window.Worker = IFrameWorker;
}
