/** An attachment that reports the size of its element, now and whenever it changes. */
export function resized(report: (size: { width: number; height: number }) => void): (element: Element) => () => void {
  return (element) => {
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry!.contentRect;
      report({ width: Math.round(width), height: Math.round(height) });
    });
    observer.observe(element);
    return () => observer.disconnect();
  };
}
