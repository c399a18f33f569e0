// Lets the site's search run when its pages are opened as files: browsers start no workers then, so that the script of
// the worker runs in a hidden frame. MkDocs' theme looks for the name of this class.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.documentElement.append(frame);
    const inside = frame.contentWindow;
    let ready = new Promise(resolve => {
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location);
      script.onload = resolve;
      frame.contentDocument.head.append(script);
    });
    inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
    this.postMessage = data => {
      ready = ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    };
  }
}
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = IFrameWorker;
}
