// In a file of its own, since the Content-Security-Policy allows no script within a page.
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#api", validatorUrl: null });
