{{- define "tarry.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tarry.labels" -}}
app.kubernetes.io/name: tarry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "tarry.securityContext" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: ["ALL"]}
{{- end }}

{{/* A deployment: (dict "root" $ "name" "broker" "image" … "args" (list …) "port" 8080 "replicas" 1 "grace" 30 "resources" …) */}}
{{- define "tarry.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "tarry.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels:
      app.kubernetes.io/instance: {{ .root.Release.Name }}
      app.kubernetes.io/component: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "tarry.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
    spec:
      # More than its grace and five seconds.
      terminationGracePeriodSeconds: {{ add .grace 15 }}
      automountServiceAccountToken: false
      containers:
        - name: {{ .name }}
          image: {{ .image | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: ["tarry"]
          args:
            {{- toYaml .args | nindent 12 }}
          envFrom:
            - secretRef: {name: {{ .root.Values.secretName }}}
          ports:
            - {name: http, containerPort: {{ .port }}}
          livenessProbe:
            httpGet: {path: /healthz, port: http}
          readinessProbe:
            httpGet: {path: /readyz, port: http}
          securityContext:
            {{- include "tarry.securityContext" . | nindent 12 }}
          resources:
            {{- toYaml (.resources | default dict) | nindent 12 }}
{{- end }}
